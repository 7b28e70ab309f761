"""Results of operations on share groups; see `oncelog.broker.control.types`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from oncelog.broker.control.errors import NotFoundError, UnsupportedError
from oncelog.broker.control.names import meant
from oncelog.broker.control.types import Assignment, Offsets, Record, Shown
from oncelog.wire.messages.share_group_describe import DescribedGroup

DeliveryStateName: TypeAlias = Literal["available", "acquired", "acknowledged", "archiving", "archived"]


@dataclass(frozen=True, slots=True, repr=False)
class ShareMember(Shown):
    """A member of a share group."""

    member_id: str
    client_id: str
    host: str
    """The address from which it joined, such as ``/127.0.0.1``."""
    epoch: int
    """The member epoch."""
    subscription: tuple[str, ...] = ()
    """The topics to which it is subscribed, sorted."""
    assignment: Assignment = field(default_factory=dict)
    """The partitions from which it gets records. Other members may have them, too."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RecordsInFlight(Shown):
    """Neighbouring records of a share partition that have one state."""

    first_offset: int
    last_offset: int
    """Included."""
    state: DeliveryStateName
    """``available``: to be delivered again; ``acquired``: a member has them; ``acknowledged``: accepted; ``archived``:
    rejected, or delivered as often as allowed, or no longer in the log; ``archiving``: to be archived when the
    dead-letter queue has them."""
    delivery_count: int
    """How often they were delivered."""
    member_id: str | None = None
    """The member that has acquired them."""
    locked_until_ms: int | None = None
    """When that member's lock ends, in broker time."""


@dataclass(frozen=True, slots=True, repr=False)
class SharePartitionInfo(Shown):
    """A partition as a share group reads it."""

    start_offset: int | None
    """All records before it are done. None: nobody has read the partition yet, ``share.auto.offset.reset`` decides."""
    in_flight: tuple[RecordsInFlight, ...] | None = ()
    """The delivered records from there on, by offset; records behind them were not delivered yet. None on a Kafka
    cluster, which does not show them."""
    lag: int | None = None
    """How many offsets of the log, from the start offset on, are neither acknowledged nor archived; None without a
    start offset."""

    @property
    def acquired(self) -> int:
        """How many records members have now. Raises UnsupportedError of a cluster."""
        return sum(
            one.last_offset - one.first_offset + 1 for one in known_in_flight(self) if one.state == "acquired"
        )


def known_in_flight(partition: SharePartitionInfo) -> tuple[RecordsInFlight, ...]:
    """Return the records in flight. Raises UnsupportedError where they are not known."""
    if partition.in_flight is None:
        raise UnsupportedError(
            "a Kafka cluster, also one behind a proxy, does not tell which records of a share group are in flight: "
            "only a broker of oncelog does; start_offset and lag are known"
        )
    return partition.in_flight


@dataclass(frozen=True, slots=True, repr=False)
class ShareGroupInfo(Shown):
    """A share group: its members, and its partitions."""

    group_id: str
    state: str
    """As Kafka's tools show it: Empty, Stable."""
    epoch: int
    """The group epoch."""
    members: tuple[ShareMember, ...]
    partitions: dict[str, dict[int, SharePartitionInfo]]
    """By topic and partition: those that have a state."""

    @property
    def in_flight(self) -> dict[str, dict[int, tuple[RecordsInFlight, ...]]]:
        """The records in flight by topic and partition, where there are any. Raises UnsupportedError of a cluster."""
        found = {
            topic: {number: rows for number, one in partitions.items() if (rows := known_in_flight(one))}
            for topic, partitions in self.partitions.items()
        }
        return {topic: partitions for topic, partitions in found.items() if partitions}

    @property
    def start_offsets(self) -> Offsets:
        """The start offset of each partition that has one."""
        found = {
            topic: {
                number: one.start_offset for number, one in partitions.items() if one.start_offset is not None
            }
            for topic, partitions in self.partitions.items()
        }
        return {topic: partitions for topic, partitions in found.items() if partitions}

    @property
    def acquired(self) -> int:
        """How many records members have now. Raises UnsupportedError of a cluster."""
        return sum(one.acquired for partitions in self.partitions.values() for one in partitions.values())

    @property
    def total_lag(self) -> int | None:
        """The sum of the partitions' lags; None if none has a start offset."""
        lags = [
            one.lag
            for partitions in self.partitions.values()
            for one in partitions.values()
            if one.lag is not None
        ]
        return sum(lags) if lags else None


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetter(Shown):
    """A record of a share group's dead-letter queue: it stands for one record that no member could process."""

    topic: str
    """Of that record, as are partition and offset."""
    partition: int
    offset: int
    group_id: str
    delivery_count: int
    """How often that record was delivered."""
    reason: str
    """``Offset rejected by client.``, or ``Offset delivery count exceeded the threshold.``"""
    queue: str
    """The topic that is the dead-letter queue."""
    queue_partition: int
    queue_offset: int
    timestamp: int
    """When it was written there, in milliseconds."""
    key: bytes | None = None
    """That of the record, if the group has ``errors.deadletterqueue.copy.record.enable`` and it could be copied."""
    value: bytes | None = None
    """As `key`."""


def dead_letters_of(records: Iterable[Record], group_id: str) -> list[DeadLetter]:
    """Return the group's dead letters among the records of a queue. Those of other groups may be there, and records of
    programs.
    """
    return [one for record in records if (one := _dead_letter(record)) and one.group_id == group_id]


def _dead_letter(record: Record) -> DeadLetter | None:
    """Return the dead letter that a record's headers describe; None if they do not."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    try:
        return DeadLetter(
            topic=headers["__dlq.errors.topic"],
            partition=int(headers["__dlq.errors.partition"]),
            offset=int(headers["__dlq.errors.offset"]),
            group_id=headers["__dlq.errors.group"],
            delivery_count=int(headers["__dlq.errors.delivery.count"]),
            reason=headers["__dlq.errors.message"],
            queue=record.topic,
            queue_partition=record.partition,
            queue_offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
        )
    except (KeyError, ValueError):
        return None


def no_dead_letter_queue(group_id: str, with_one: Collection[str] = ()) -> NotFoundError:
    """Return the error for a group without a dead-letter queue, where those groups have one."""
    return NotFoundError(
        f"share group {group_id} has no dead-letter queue{meant(group_id, with_one)} "
        f"(kafka.share_group({group_id!r}).configure({{'errors.deadletterqueue.topic.name': 'dlq.{group_id}'}}) names "
        "one)"
    )


def no_queue_topic(group_id: str, queue: str, queues: Collection[str] = ()) -> NotFoundError:
    """Return the error for a group whose dead-letter queue does not exist; those topics may be queues."""
    return NotFoundError(
        f"the dead-letter queue of share group {group_id} does not exist: topic {queue!r}{meant(queue, queues)} "
        "(errors.deadletterqueue.auto.create.topics.enable=true lets the broker create it with the first record)"
    )


def share_group_info(
    described: DescribedGroup, partitions: dict[str, dict[int, SharePartitionInfo]]
) -> ShareGroupInfo:
    """Return the share group that ShareGroupDescribe describes."""
    return ShareGroupInfo(
        group_id=described.group_id,
        state=described.group_state,
        epoch=described.group_epoch,
        members=tuple(
            ShareMember(
                member_id=row.member_id,
                client_id=row.client_id,
                host=row.client_host,
                epoch=row.member_epoch,
                subscription=tuple(sorted(row.subscribed_topic_names)),
                assignment={
                    one.topic_name: sorted(one.partitions) for one in row.assignment.topic_partitions
                },
                rack_id=row.rack_id,
            )
            for row in described.members
        ),
        partitions=partitions,
    )


def no_committed_offsets(group_id: str) -> str:
    """Return why offsets cannot be committed for a share group."""
    return (
        f"{group_id} is a share group, which has no committed offsets: its members acknowledge each record. Where it "
        f"begins is set by kafka.share_group({group_id!r}).configure({{'share.auto.offset.reset': 'earliest'}}), and "
        "kafka-share-groups --reset-offsets moves it"
    )
