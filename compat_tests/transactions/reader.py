"""A committed reader that goes on reading while brokers and programs die: what tests wait for instead of time."""

import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

WAIT_S = 180
AGAIN = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500}
"""How a librdkafka client finds a broker that comes back: it does not bootstrap again (see transformer.py), and is not
late."""


class Reader:
    """Of all partitions of a topic, from their beginning; a context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        """Key and value of each record read so far."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "progress",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **AGAIN,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def wait_for(self, count: int) -> None:
        """Until that many records are there. Raises AssertionError where they do not come."""
        deadline = time.monotonic() + WAIT_S
        while len(self.rows) < count:
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                self.rows.append((message.key() or b"", message.value() or b""))
            assert time.monotonic() < deadline, f"{len(self.rows)} of {count} records"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
