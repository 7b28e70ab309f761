"""The steps of a task of a batch, in the only order that writes each row exactly once.

Initialise the producer (which fences its predecessor and ends that one's transaction), read the committed offset, and
skip a committed batch; otherwise begin, produce, record, send the offset, commit. There is no other coordination:
Spark's own commit comes later and decides nothing.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from oncelog.spark.clients import client
from oncelog.spark.control import (
    DEADLINE_S,
    Settings,
    claim_sink,
    is_fenced,
    kafka_error,
    read_claim,
    read_control,
    retry,
    transactional_producer,
)
from oncelog.spark.errors import SinkError
from oncelog.spark.rows import Digest, SinkRow


class Batch(NamedTuple):
    """A task of a batch of a query."""

    query: str
    batch: int
    task: int


class Record(NamedTuple):
    """A task's last batch, as stored with the committed offset and in the control topic."""

    batch: int
    rows: int
    digest: str
    query: str
    token: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls(**json.loads(text))


class Written(NamedTuple):
    """A task's result: the number of rows, and whether an earlier attempt had written them (`found`)."""

    rows: int
    found: bool


class TaskWrite:
    """Writes the rows of one task; used once. `on_step` is called with each step's name after it."""

    def __init__(
        self, settings: Settings, batch: Batch, on_step: Callable[[str], None] = lambda step: None
    ) -> None:
        self._settings = settings
        self._batch = batch
        self._on_step = on_step
        self._producer: Producer | None = None
        self._open = False
        self.written = Written(0, False)

    def run(self, rows: Iterable[SinkRow]) -> Written:
        """Run all steps; abort an open transaction if one fails. Raises SinkError, and what the rows raise."""
        try:
            for step in self.steps(rows):
                self._on_step(step)
        except KafkaException as failed:
            self._abort()
            raise self._sink_error(failed) from None
        except BaseException:
            self._abort()
            raise
        return self.written

    def steps(self, rows: Iterable[SinkRow]) -> Iterator[str]:
        """Run the steps one by one, and yield each one's name. A caller that stops leaves the state of a killed task.

        Raises KafkaException, SinkError.
        """
        settings, batch = self._settings, self._batch
        transactional_id = settings.transactional_id(batch.task)
        producer = self._producer = transactional_producer(settings, transactional_id)
        yield "initialised"
        consumer = self._consumer(transactional_id)
        try:
            last = self._last_batch(consumer)
            yield "checked"
            if last is not None and last.batch == batch.batch:
                self._compare(rows, last)
                yield "compared"
                return
            digest = Digest()
            for row in rows:
                if not self._open:
                    producer.begin_transaction()
                    self._open = True
                    yield "begun"
                self._produce(producer, row)
                digest.add(row)
            if not self._open:
                if last is not None and last.token == settings.token:
                    return  # no rows, so nothing to record
                # A driver's first batch is recorded even without rows, so that an older driver finds its token.
                producer.begin_transaction()
                self._open = True
                yield "begun"
            yield "produced"
            record = Record(batch.batch, digest.rows, digest.text(), batch.query, settings.token).to_json()
            producer.produce(settings.control, record.encode(), f"task:{transactional_id}")
            yield "recorded"
            offset = TopicPartition(settings.control, 0, batch.batch, metadata=record)
            retry(
                settings, producer.send_offsets_to_transaction, [offset], consumer.consumer_group_metadata()
            )
            yield "offset sent"
            # If the outcome is unknown, the same call on the same producer asks for it.
            retry(settings, producer.commit_transaction)
            self._open = False
            self.written = Written(digest.rows, False)
            yield "committed"
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        """A consumer for the group's offsets and its metadata. It never subscribes."""
        configuration = client(
            self._settings.kafka, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
        )
        return Consumer(configuration)

    def _last_batch(self, consumer: Consumer) -> Record | None:
        """This query's last batch, if any. Claims the sink if necessary; raises SinkError if another driver has it."""
        settings, batch = self._settings, self._batch
        (found,) = retry(settings, consumer.committed, [TopicPartition(settings.control, 0)])
        if found.error is not None:
            raise KafkaException(found.error)
        last = Record.from_json(found.metadata) if found.offset >= 0 and found.metadata else None
        if found.offset < 0:  # a new task, or one whose offsets have expired
            stored = read_control(settings).get(f"task:{settings.transactional_id(batch.task)}")
            last = Record.from_json(stored) if stored else None
        if last is None or (last.query, last.token) != (batch.query, settings.token):
            claim_sink(settings, batch.query)
        if last is None or last.query != batch.query:
            return None
        if last.batch > batch.batch:
            if settings.adopt:
                return None
            raise SinkError(
                f"{self._name()}: batch {last.batch} is already written: a zombie, or an older checkpoint"
            )
        return last

    def _compare(self, rows: Iterable[SinkRow], last: Record) -> None:
        """Raises SinkError if the rows are not those of the committed batch."""
        digest = Digest()
        for row in rows:
            digest.add(row)
        if (digest.rows, digest.text()) != (last.rows, last.digest):
            raise SinkError(
                f"{self._name()}: the rows differ from those that were committed ({digest.rows} rows now, "
                f"{last.rows} then): the query is not a deterministic function of its source"
            )
        self.written = Written(digest.rows, True)

    def _produce(self, producer: Producer, row: SinkRow) -> None:
        if row.bucket != self._batch.task:
            raise SinkError(f"{self._name()}: a row of task {row.bucket}: rows were moved after write_once")
        fields: dict[str, Any] = {} if row.partition is None else {"partition": row.partition}
        if row.headers is not None:
            fields["headers"] = list(row.headers)
        while True:
            try:
                producer.produce(row.topic, row.value, row.key, **fields)
                producer.poll(0)
                return
            except BufferError:  # its queue is full: let some leave
                producer.poll(0.1)

    def _abort(self) -> None:
        if not self._open or self._producer is None:
            return
        self._open = False
        # If this fails (fenced, no response), the successor's initialisation or the timeout ends the transaction.
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(DEADLINE_S)

    def _name(self) -> str:
        return f"sink {self._settings.sink_id}, batch {self._batch.batch}, task {self._batch.task}"

    def _sink_error(self, failed: KafkaException) -> SinkError:
        error = kafka_error(failed)
        if not is_fenced(failed):
            return SinkError(f"{self._name()}: {error.name()}: {error.str()}")
        try:
            claim = read_claim(self._settings)
        except (KafkaException, SinkError):
            claim = None
        other = "another attempt"
        if claim is not None and claim.token != self._settings.token:
            other = f"{claim.driver} (query {claim.query})"
        reason = f"{other} took over, or its transaction outlived {self._settings.transaction_timeout_ms} ms"
        return SinkError(f"{self._name()}: {reason}")
