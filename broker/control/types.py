"""What operations return: records, topics, groups, transactions and producers of a broker.

All are plain: frozen, compared by value, and made of plain values, so that they can be sent to another process. They
are copies: none changes after it was returned. Partitions are the inner keys of a dictionary by topic, as in
``{"orders": {0: 5, 1: 7}}``. Times are broker time, in milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, cast

BYTES_SHOWN = 120
"""How many bytes of a key or value a record's ``repr`` shows."""

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]
"""As consumers have it (``isolation.level``)."""
TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
Offsets: TypeAlias = dict[str, dict[int, int]]
"""Topic -> partition -> offset, or a number of records."""
Assignment: TypeAlias = dict[str, list[int]]
"""Topic -> partitions, rising."""
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

HeadersGiven: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
"""Headers of a record to be written; a text is written in UTF-8."""

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(timestamp: int) -> datetime | None:
    """Return a timestamp (ms) as a time in UTC; None for -1, and for years that a datetime does not reach."""
    if timestamp < 0:
        return None
    try:
        return UNIX_EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return None


@dataclass(frozen=True)
class BrokerInfo:
    """What identifies a broker, and whether it runs."""

    bootstrap_servers: str
    cluster_id: str
    node_id: int
    seed: int
    """Random ids and delays follow from it: ``Broker(seed=...)`` draws the same ones."""
    is_running: bool
    listeners: Mapping[str, str] = field(default_factory=dict)
    """The addresses at which it listens, by the listener's name: those that clients are told may be others
    (``advertised.listeners``). Nothing of a cluster that it does not run.
    """


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """The time in a broker."""

    now_ms: int
    """In milliseconds since 1970-01-01 UTC."""
    is_frozen: bool
    """Whether time stands still."""
    ahead_ms: int
    """By how much it is ahead of the machine's time."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that the broker did because its time had come. ``str()`` gives the text."""

    at_ms: int
    """When."""
    what: str
    """The kind: ``member dropped``, ``transaction timed out``, ..."""
    text: str
    """In words: ``member c-1 of group billing: session expired``."""
    about: dict[str, str | int]
    """The facts in the text by name: ``{"group": "billing", "member": "c-1", "reason": "session expired"}``."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    """None: a tombstone."""
    key: bytes | None = None
    headers: Headers = ()
    """Name and value of each, in the producer's order; a name may occur twice."""
    timestamp: int = -1
    """In milliseconds; -1: none."""
    timestamp_type: TimestampType = "CreateTime"
    """Who set the timestamp: the producer, or the broker (``message.timestamp.type``)."""
    leader_epoch: int = -1
    producer_id: int = -1
    """-1 unless the producer is idempotent or transactional."""
    producer_epoch: int = -1
    sequence: int = -1
    """The record's sequence number in its producer's epoch; -1 without a producer id."""
    is_transactional: bool = False

    @property
    def time(self) -> datetime | None:
        """The timestamp in UTC; None if there is none."""
        return datetime_of(self.timestamp)

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name, as Kafka's ``Headers.lastHeader``; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def __repr__(self) -> str:
        shown = [f"{self.topic}-{self.partition}@{self.offset}"]
        if self.key is not None:
            shown.append(f"key={_short(self.key)}")
        shown.append(f"value={_short(self.value)}")
        if self.headers:
            shown.append(
                "headers={" + ", ".join(f"{name}: {_short(value)}" for name, value in self.headers) + "}"
            )
        if self.is_transactional:
            shown.append(f"transactional, producer {self.producer_id} epoch {self.producer_epoch}")
        return f"Record({', '.join(shown)})"


RecordGiven: TypeAlias = (
    bytes | str | tuple[bytes | str | None, bytes | str | None] | Mapping[str, Any] | Record | None
)
"""A record to be written: its value; key and value; value, key, headers, timestamp and partition by name; or another
topic's record."""


def _short(data: bytes | None) -> str:
    if data is None or len(data) <= BYTES_SHOWN:
        return repr(data)
    return f"{data[:BYTES_SHOWN]!r}... ({len(data)} bytes)"


class Shown:
    """Shows the fields that are not as by default."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = []
        for one in fields(cast("Any", self)):
            value = getattr(self, one.name)
            default = one.default if one.default_factory is MISSING else one.default_factory()
            if one.repr and value != default:
                shown.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, repr=False)
class PartitionInfo(Shown):
    """The offsets of one partition, and its leader epoch."""

    partition: int
    log_start_offset: int
    """The first offset that can be read."""
    last_stable_offset: int
    """The end (exclusive) of the records for read_committed consumers: the first offset of an open transaction."""
    high_watermark: int
    """The end (exclusive) of the records for other consumers."""
    log_end_offset: int
    """The next record's offset. It is above the high watermark while records wait for a flush (``flush.messages``)."""
    leader_epoch: int


@dataclass(frozen=True, slots=True, repr=False)
class TopicInfo(Shown):
    """A topic, its partitions and its configuration."""

    name: str
    topic_id: str
    """As Kafka writes it: 22 characters of URL-safe base64."""
    partitions: tuple[PartitionInfo, ...]
    """By partition."""
    config: dict[str, str | None] = field(repr=False)
    """Every configuration key of a topic and the value in effect."""
    overrides: dict[str, str]
    """Those that were set on the topic itself."""
    is_internal: bool = False
    """Whether Kafka itself uses it, such as ``__consumer_offsets``."""


@dataclass(frozen=True, slots=True, repr=False)
class NodeInfo(Shown):
    """A node of a broker with several."""

    node_id: int
    address: str
    """Its first advertised address."""
    is_running: bool
    is_fenced: bool
    """Whether the controller counts it as dead, or as not ready."""


@dataclass(frozen=True, slots=True, repr=False)
class ReplicaInfo(Shown):
    """A replica of a partition. Its offsets are 0 if its node does not run."""

    node: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    is_running: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class PartitionState(Shown):
    """A partition with its replicas: the controller's facts, and the offsets that each node has."""

    partition: int
    leader: int | None
    """The node that leads; None: no replica may."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """The replicas in sync."""
    elr: tuple[int, ...]
    """Replicas that are not in sync, and may lead without a loss (KIP-966)."""
    replicas: tuple[ReplicaInfo, ...]
    """In the order of preference."""


@dataclass(frozen=True, slots=True, repr=False)
class Member(Shown):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    """The address from which it joined, such as ``/127.0.0.1``."""
    instance_id: str | None = None
    """``group.instance.id`` of a static member."""
    protocol: Literal["classic", "consumer"] = "classic"
    epoch: int = -1
    """The member epoch; of a classic member, the group's generation."""
    subscription: tuple[str, ...] = ()
    """The topics to which it is subscribed by name, sorted."""
    subscription_regex: str | None = None
    """The regular expression to which it is subscribed (consumer protocol only)."""
    assignment: Assignment = field(default_factory=dict)
    """The partitions that it has; with the consumer protocol, also those that it has yet to revoke. Empty for groups of
    other programs than consumers, whose assignments the broker cannot read."""
    target_assignment: Assignment | None = None
    """The partitions that it will have in the end; None for a member of a classic group."""


@dataclass(frozen=True, slots=True, repr=False)
class GroupInfo(Shown):
    """A group: its members, and its offsets."""

    group_id: str
    type: Literal["classic", "consumer"]
    """The protocol of the group."""
    state: str
    """As Kafka's tools show it: Empty, PreparingRebalance, CompletingRebalance, Stable; with the consumer protocol
    Empty, Assigning, Reconciling, Stable."""
    protocol_type: str
    """``consumer``, ``connect``, ...; empty for a group that has only offsets."""
    protocol: str | None
    """The assignor that the group uses; None if there is none yet."""
    epoch: int
    """The group epoch; of a classic group, its generation."""
    members: tuple[Member, ...]
    committed: Offsets
    """The committed offsets: of each partition, the offset of the record to be read next."""
    pending: Offsets
    """The offsets of transactions that are still open."""
    lag: Offsets
    """How many records each partition has after the committed offset, or has at all where none was committed, for the
    partitions with a committed offset and those of subscribed topics."""

    @property
    def is_simple(self) -> bool:
        """Whether it exists only because of its offsets."""
        return self.type == "classic" and not self.protocol_type and not self.members

    @property
    def total_lag(self) -> int | None:
        """The sum of `lag`; None if it has no partition."""
        if not self.lag:
            return None
        return sum(count for partitions in self.lag.values() for count in partitions.values())


@dataclass(frozen=True, slots=True, repr=False)
class TransactionInfo(Shown):
    """A transactional id and its last transaction."""

    transactional_id: str
    state: str
    """As Kafka's tools show it: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """When the transaction began; None if there was none yet."""
    last_update_ms: int
    partitions: Assignment
    """The partitions in the transaction; after the decision, those that have no marker yet; none at its end. Includes
    ``__consumer_offsets`` where the transaction has offsets."""

    @property
    def is_open(self) -> bool:
        """Whether it is neither committed nor aborted yet."""
        return self.state == "Ongoing"


@dataclass(frozen=True, slots=True, repr=False)
class ProducerInfo(Shown):
    """The state of an idempotent or transactional producer in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    """The sequence number of its last record; -1 if it has written none in this epoch."""
    last_timestamp: int
    """Of its last record or marker, in milliseconds."""
    transaction_start_offset: int | None
    """The offset of the first record of its open transaction; None if none is open in this partition."""
    transactional_id: str | None = None
    """None if it has none, or if the id belongs to another producer id now."""
