"""An exactly-once Kafka sink for Structured Streaming: `write_once`, and the data source `oncelog` beneath it."""

from oncelog.spark.errors import SinkError
from oncelog.spark.once import write_once

__all__ = ["SinkError", "write_once"]
