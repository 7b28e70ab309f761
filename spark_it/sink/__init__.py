"""An exactly-once Kafka sink for Structured Streaming: `write_once`, and the data source `oncelog` beneath it."""

from spark_it.sink.errors import SinkError
from spark_it.sink.once import write_once

__all__ = ["SinkError", "write_once"]
