"""Creates, fills, changes and reads topics through confluent-kafka, without Spark."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from compat_tests.differential import Session
from oncelog.spark.clients import client

DEADLINE_S = 60.0
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as a client sees it; `timestamp` is in ms, or None for the client's own."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None


def numbered(count: int, start: int = 0) -> list[Record]:
    """Records k0/v0, k1/v1, …"""
    return [Record(b"k%d" % one, b"v%d" % one) for one in range(start, start + count)]


def wait_until(check: Any, reason: str | Callable[[], str], deadline_s: float = DEADLINE_S) -> Any:
    """Call `check` until its result is true; returns the result. Raises AssertionError after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (result := check()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"not in {deadline_s:.0f} s: {reason if isinstance(reason, str) else reason()}"
            )
        time.sleep(0.02)
    return result


class Topics:
    """A broker's topics."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.settings = {"bootstrap.servers": bootstrap}
        self.admin = AdminClient(client(self.settings))
        self._session = Session(bootstrap)
        self._producer: Producer | None = None

    def close(self) -> None:
        self._close_producer()
        self._session.close()

    def _close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def make(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic, by default without retention, and wait for its leaders; returns its name."""
        self._session.topic(name, partitions, {"retention.ms": "-1", **(configs or {})})
        return name

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the broker no longer lists it."""
        self.admin.delete_topics([name])[name].result(DEADLINE_S)
        wait_until(lambda: name not in self.admin.list_topics(timeout=DEADLINE_S).topics, f"{name} is gone")

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(DEADLINE_S)
        self._session.wait_for_leaders(name, total)
        self._close_producer()  # its metadata has the old number of partitions

    def delete_records(self, name: str, partition: int, before: int) -> None:
        where = TopicPartition(name, partition, before)
        for future in self.admin.delete_records([where]).values():
            future.result(DEADLINE_S)

    def produce(self, name: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        """Produce records; their offsets."""
        if self._producer is None:
            self._producer = Producer(client(self.settings, enable_idempotence=True, linger_ms=1))
        return _produce(self._producer, name, records, partition)

    def configure(self, name: str, key: str, value: str) -> None:
        """Set a topic's configuration, and wait until the broker has it."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE_S)
        self._session.wait_for_config(name, key, value)

    def wait_for_start(self, name: str, partition: int, offset: int) -> None:
        """Wait until the log start offset is at least `offset`."""
        wait_until(
            lambda: self.ends(name, partition)[0] >= offset, f"retention removes the records before {offset}"
        )

    @contextlib.contextmanager
    def transactional(self, transactional_id: str, **settings: Any) -> Iterator[Producer]:
        """An initialised transactional producer. An open transaction stays open when the context is left."""
        # The first InitProducerId creates the internal topic, which takes a moment.
        producer = Producer(client(self.settings, transactional_id=transactional_id, **settings))
        producer.init_transactions(DEADLINE_S)
        yield producer

    def transaction(
        self, name: str, records: Sequence[Record], *, commit: bool, partition: int = 0
    ) -> list[int]:
        """Produce records in a transaction and end it; their offsets. A marker follows them."""
        with self.transactional(f"{name}-{partition}-{commit}") as producer:
            producer.begin_transaction()
            offsets = _produce(producer, name, records, partition)
            if commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
            return offsets

    def ends(self, name: str, partition: int = 0, *, committed: bool = True) -> tuple[int, int]:
        """The log start offset, and the last stable offset or the high watermark."""
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(client(self.settings, group_id="unused", isolation_level=isolation))
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), DEADLINE_S)
            return int(low), int(high)
        finally:
            consumer.close()

    def read(self, name: str, partition: int = 0, *, committed: bool = True) -> list[Message]:
        """All records that are there now."""
        start, end = self.ends(name, partition)
        isolation = "read_committed" if committed else "read_uncommitted"
        configuration = client(
            self.settings,
            group_id="unused",
            enable_auto_commit=False,
            auto_offset_reset="error",
            isolation_level=isolation,
            enable_partition_eof=True,
            fetch_wait_max_ms=10,
        )
        consumer = Consumer(configuration)
        found: list[Message] = []
        try:
            if start == end:
                return found
            consumer.assign([TopicPartition(name, partition, start)])
            while True:
                message = consumer.poll(DEADLINE_S)
                assert message is not None, f"{len(found)} records of {start}..{end}"
                if (error := message.error()) is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    return found
                elif not error.retriable() and error.name() not in (
                    "COORDINATOR_NOT_AVAILABLE",
                    "_TRANSPORT",
                ):
                    raise KafkaException(error)
        finally:
            consumer.close()

    def values(self, name: str, partitions: int = 1) -> list[bytes | None]:
        """The values of every committed record, partition by partition."""
        return [one.value() for partition in range(partitions) for one in self.read(name, partition)]


def _produce(producer: Producer, name: str, records: Sequence[Record], partition: int) -> list[int]:
    offsets: list[int] = []
    errors: list[Any] = []

    def delivered(error: Any, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(int(message.offset() or 0))

    for record in records:
        fields: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
        producer.produce(
            name,
            record.value,
            record.key,
            partition,
            on_delivery=delivered,
            headers=list(record.headers),
            **fields,
        )
    left = producer.flush(DEADLINE_S)
    assert not errors, errors[0]
    assert left == 0, f"{left} records were not delivered"
    return offsets
