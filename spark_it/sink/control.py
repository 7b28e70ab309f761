"""The control topic: one compacted partition with the state of each sink and of its tasks.

`sink:<sink id>` -> the claim: the query that writes the sink, the layout of its rows, the earlier drivers.
`task:<transactional id>` -> a copy of the committed offset's metadata, for when the group's offsets have expired.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from oncelog.spark.clients import client
from oncelog.spark.errors import SinkError

CONTROL_TOPIC = "oncelog-sinks"
DEADLINE_S = 60.0
CONNECT_S = 20.0  # for a client's first response
TRANSACTION_TIMEOUT_MS = 60_000
# Retriable errors that librdkafka's consumer does not report as such.
RETRIABLE = (
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "UNSTABLE_OFFSET_COMMIT",
)
RETRY_S = 0.05
CLAIM_ATTEMPTS_MAX = 50
DRIVERS_REMEMBERED = 20


class Settings(NamedTuple):
    """A driver's settings of a sink. `token` identifies the driver's start; `driver` is a readable name."""

    sink_id: str
    tasks: int
    by: tuple[str, ...]
    kafka: Mapping[str, str]
    source: str = ""
    control: str = CONTROL_TOPIC
    adopt: bool = False
    token: str = ""
    driver: str = ""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    timeout_s: float = DEADLINE_S  # for a step without a response or with retriable errors

    def transactional_id(self, task: int) -> str:
        """The task's transactional id, and also the group id whose committed offset is the last batch."""
        return f"{self.sink_id}-{task}"

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "by": list(self.by), "kafka": dict(self.kafka)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "by": tuple(fields["by"])})


class Claim(NamedTuple):
    """The query and driver that write a sink, and its layout. `drivers` are the tokens of earlier drivers."""

    query: str | None
    tasks: int
    by: tuple[str, ...]
    source: str
    token: str
    driver: str
    drivers: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "by": tuple(fields["by"]), "drivers": tuple(fields["drivers"])})


def kafka_error(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def is_fenced(exception: KafkaException) -> bool:
    """Whether another producer now has the transactional id."""
    return kafka_error(exception).name() in ("_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def retry(settings: Settings, call: Any, *arguments: Any) -> Any:
    """`call(*arguments, seconds left)`; repeated after retriable errors until the settings' timeout."""
    deadline = time.monotonic() + settings.timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return call(*arguments, max(left, 1.0))
        except KafkaException as failed:
            error = kafka_error(failed)
            if left <= 0 or not (error.retriable() or error.name() in RETRIABLE):
                raise
            time.sleep(RETRY_S)


def check_topic(settings: Settings, topic: str | None, create_partitions: int | None = None) -> None:
    """Create the topic with `create_partitions` partitions if it is missing. Raises SinkError if that is None: a
    producer would otherwise create the topic, with the broker's defaults."""
    admin = AdminClient(client(settings.kafka))
    known = admin.list_topics(timeout=CONNECT_S).topics
    if topic is None or topic in known:
        return
    if create_partitions is None:
        raise SinkError(f"sink {settings.sink_id}: there is no topic {topic}; create_partitions=N creates it")
    _make_topic(settings, admin, NewTopic(topic, num_partitions=create_partitions))


def make_control_topic(settings: Settings) -> None:
    """Create the control topic if it is missing. Raises SinkError."""
    admin = AdminClient(client(settings.kafka))
    new = NewTopic(settings.control, num_partitions=1, config={"cleanup.policy": "compact"})
    partitions = _make_topic(settings, admin, new)
    if partitions != 1:
        raise SinkError(f"sink {settings.sink_id}: {settings.control} has {partitions} partitions, not one")


def _make_topic(settings: Settings, admin: AdminClient, new: NewTopic) -> int:
    """Create a topic if it is missing, and wait for its leaders; its number of partitions. Raises SinkError."""
    topic: str = new.topic
    try:
        admin.create_topics([new], request_timeout=DEADLINE_S)[topic].result(2 * DEADLINE_S)
    except KafkaException as failed:
        if kafka_error(failed).name() != "TOPIC_ALREADY_EXISTS":
            raise SinkError(f"sink {settings.sink_id}: {topic}: {kafka_error(failed).str()}") from None
    deadline = time.monotonic() + DEADLINE_S
    while True:
        known = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
        if known.error is None and known.partitions:
            return len(known.partitions)
        if time.monotonic() > deadline:
            raise SinkError(f"sink {settings.sink_id}: {topic} was made, but nobody leads it")


def _end(settings: Settings, admin: AdminClient, isolation: IsolationLevel) -> int:
    """The control topic's end offset for this isolation level."""
    futures = admin.list_offsets(
        {TopicPartition(settings.control, 0): OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=isolation,
        request_timeout=DEADLINE_S,
    )
    return int(next(iter(futures.values())).result(2 * DEADLINE_S).offset)


def has_open_transactions(settings: Settings) -> bool:
    """Whether the control topic has a transaction that is neither committed nor aborted."""
    admin = AdminClient(client(settings.kafka))
    stable = _end(settings, admin, IsolationLevel.READ_COMMITTED)
    return stable < _end(settings, admin, IsolationLevel.READ_UNCOMMITTED)


def read_control(settings: Settings, *, wait: bool = True) -> dict[str, bytes]:
    """The last committed value of each key, among the records that are there at the call.

    Records after an open transaction cannot be read, so this waits for open transactions to end. Without `wait` it
    ignores records after them.
    """
    where = TopicPartition(settings.control, 0, 0)
    level = IsolationLevel.READ_UNCOMMITTED if wait else IsolationLevel.READ_COMMITTED
    end = _end(settings, AdminClient(client(settings.kafka)), level)
    found: dict[str, bytes] = {}
    with _consumer(settings) as consumer:
        consumer.assign([where])
        deadline = time.monotonic() + DEADLINE_S + settings.transaction_timeout_ms / 1000
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is None:
                found[(message.key() or b"").decode()] = message.value() or b""
            elif error.name() == "_PARTITION_EOF":
                if (message.offset() or 0) >= end:
                    return found
            elif error.fatal():
                raise KafkaException(error)
    raise SinkError(f"sink {settings.sink_id}: {settings.control} could not be read to offset {end}")


@contextlib.contextmanager
def _consumer(settings: Settings) -> Iterator[Consumer]:
    configuration = client(
        settings.kafka,
        group_id=f"{settings.sink_id}-reader",  # never joined
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_partition_eof=True,
        fetch_wait_max_ms=10,  # every read waits once at the end of the partition
    )
    consumer = Consumer(configuration)
    try:
        yield consumer
    finally:
        consumer.close()


def transactional_producer(settings: Settings, transactional_id: str) -> Producer:
    """An initialised producer: its predecessor is fenced, and that one's open transaction has ended."""
    configuration = client(
        {"linger.ms": "5", **settings.kafka},
        transactional_id=transactional_id,
        transaction_timeout_ms=settings.transaction_timeout_ms,
    )
    producer = Producer(configuration)
    retry(settings, producer.init_transactions)
    return producer


def read_claim(settings: Settings, *, wait: bool = True) -> Claim | None:
    found = read_control(settings, wait=wait).get(f"sink:{settings.sink_id}")
    return Claim.from_json(found) if found else None


def end_leftovers(settings: Settings) -> int:
    """End all open transactions of this sink's tasks, dead or alive; the number of tasks, 0 for an unknown sink."""
    claim = read_claim(settings, wait=False)  # it must not wait for the open transactions that it is to end
    for task in range(claim.tasks if claim is not None else 0):
        transactional_producer(settings, settings.transactional_id(task))
    return claim.tasks if claim is not None else 0


def check_layout(settings: Settings, claim: Claim | None) -> None:
    """Raises SinkError if the claim has another layout of rows."""
    if claim is not None and (claim.tasks, claim.by) != (settings.tasks, settings.by):
        raise SinkError(
            f"sink {settings.sink_id} is laid out as tasks={claim.tasks}, by={list(claim.by)}; "
            f"tasks={settings.tasks}, by={list(settings.by)} would repeat and lose rows"
        )


def claim_sink(settings: Settings, query: str | None) -> None:
    """Claim the sink for this driver and query, if they do not have it. Raises SinkError with the owner's name.

    Claims use the transactional id `<sink id>-claim`, so that only one is made at a time. None is a query that is not
    known yet.
    """
    for _ in range(CLAIM_ATTEMPTS_MAX):
        try:
            producer = None
            claim = read_claim(settings)
            if _is_settled(settings, claim, query):
                return
            producer = transactional_producer(settings, f"{settings.sink_id}-claim")
            claim = read_claim(settings)  # no other driver can change it now
            if _is_settled(settings, claim, query):
                return
            before = () if claim is None else (*claim.drivers, claim.token)
            before = tuple(one for one in before if one != settings.token)[-DRIVERS_REMEMBERED:]
            known = claim.query if claim is not None and query is None else query
            new = Claim(
                known, settings.tasks, settings.by, settings.source, settings.token, settings.driver, before
            )
            producer.begin_transaction()
            producer.produce(settings.control, new.to_json(), f"sink:{settings.sink_id}")
            retry(settings, producer.commit_transaction)
            return
        except KafkaException as failed:
            if not is_fenced(failed):
                raise SinkError(f"sink {settings.sink_id}: claim: {kafka_error(failed).str()}") from None
    raise SinkError(f"sink {settings.sink_id}: {CLAIM_ATTEMPTS_MAX} others claimed it in a row")


def _is_settled(settings: Settings, claim: Claim | None, query: str | None) -> bool:
    """Whether the claim is this driver's. Raises SinkError if this driver may not claim the sink."""
    check_layout(settings, claim)
    if claim is None:
        return False
    if settings.token in claim.drivers:
        raise SinkError(
            f"sink {settings.sink_id} was taken over from {settings.driver} by {claim.driver} (query {claim.query})"
        )
    mine = claim.query in (None, query) or query is None
    if not mine and not settings.adopt:
        raise SinkError(
            f"sink {settings.sink_id} belongs to query {claim.query} ({claim.driver}), this is query {query}: "
            "a new or lost checkpoint; adopt=true takes it over, and may write again what that one has written"
        )
    return claim.token == settings.token and (query is None or claim.query == query)
