"""Readers of transactions: a consumer that survives its broker, and all values or offsets at once."""

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from compat_tests.transactions.transformer import RECOVERY
from tests.common.threads import join

READER_TIMEOUT_S = 180
TIMEOUT_S = 20
POLL_S = 0.2
FAST_RECONNECT = {**RECOVERY, "reconnect.backoff.max.ms": 500}
"""librdkafka's settings to find a restarted broker soon."""


class Reader:
    """Reads all partitions of a topic from their start while brokers are killed; a context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, level: str = "read_committed") -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        """Key and value of each record read so far."""
        self._changed = threading.Condition()
        self._ended = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "progress",
                "isolation.level": level,
                "enable.auto.commit": False,
                **FAST_RECONNECT,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended:
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                with self._changed:
                    self.rows.append((message.key() or b"", message.value() or b""))
                    self._changed.notify_all()
        self._consumer.close()

    def wait_for(self, count: int) -> None:
        """Wait until `count` records are read. Raises AssertionError after a timeout."""
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.rows) >= count, READER_TIMEOUT_S)
        assert found, f"{len(self.rows)} of {count} records"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        join(self._thread)


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, partitions: int, level: str) -> Iterator[Consumer]:
    """Yield a consumer of all partitions, from their beginning."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": level}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        yield consumer
    finally:
        consumer.close()


def values(
    bootstrap: str, topic: str, count: int, partitions: int = 1, *, level: str = "read_committed"
) -> list[str]:
    """The values of at least ``count`` records, and of those that follow at once; sorted."""
    found: list[str] = []
    with reading(bootstrap, topic, partitions, level) as consumer:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.3)
            if message is None:
                if len(found) >= count:
                    break
            elif message.error() is None:
                found.append((message.value() or b"").decode())
    return sorted(found)


def places(bootstrap: str, topic: str, wanted: Collection[str], partitions: int, *, level: str) -> list[str]:
    """Return the positions of the records with the values ``wanted``, a line each, for the report of a failure."""
    found: list[str] = []
    with reading(bootstrap, topic, partitions, level) as consumer:
        missed = 0
        while missed < 3:
            message = consumer.poll(1)
            missed = missed + 1 if message is None else 0
            if message is None or message.error() is not None:
                continue
            value = (message.value() or b"").decode()
            if value in wanted:
                written_ms = message.timestamp()[1]
                at = f"{topic}-{message.partition()} offset {message.offset()}"
                found.append(
                    f"{level}: {value} at {at}, epoch {message.leader_epoch()}, written {written_ms}"
                )
    return found


def committed(bootstrap: str, group: str, topic: str, offset: int) -> int:
    """The group's committed offset, once it is ``offset`` or after a timeout: Kafka responds before its markers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = int(consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset)
            if found == offset or time.monotonic() > deadline:
                return found
            time.sleep(0.05)
    finally:
        consumer.close()
