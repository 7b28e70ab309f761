"""`Group`: the interface of groups of any protocol (Kafka: ``Group``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"


def allow_any_partition(topic: str, topic_id: Uuid, partition: int) -> None:
    """A check for one partition of an OffsetCommit that never refuses."""


class Group(Protocol):
    """A group of any protocol. The ``check_…`` methods raise KafkaError with the error for the client."""

    group_id: str
    static_members: dict[str, str]
    """Instance id -> member id."""
    group_type: str
    """`CLASSIC`, `CONSUMER` or `SHARE`; ListGroups has it capitalised."""

    @property
    def expires(self) -> bool:
        """Whether an empty group without offsets is removed after some time."""

    @property
    def state_name(self) -> str:
        """As Kafka's tools show it: ``Stable``, ``PreparingRebalance``, ``Assigning``, ..."""

    @property
    def protocol_type(self) -> str:
        """``consumer``, ``connect``, ...; empty for a group that has only offsets."""

    def has_member(self, member_id: str) -> bool: ...

    def member_ids(self) -> Collection[str]: ...

    def client_id_of(self, member_id: str) -> str:
        """The client id of a member; empty if there is no such member."""

    def has_waiting_request(self, member_id: str) -> bool:
        """Whether a JoinGroup or SyncGroup of the member waits for other members."""

    def expects(self, member_id: str) -> bool:
        """Whether it has that member, or has given out that member id and waits for the member to join."""

    def is_empty(self) -> bool: ...

    def awaited_members(self, kind: str) -> Collection[str]:
        """The ids of the members for which the group's timer of that kind (`GroupDeadline`) waits."""

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> Callable[[str, Uuid, int], None]:
        """Check that the member may commit. Returns the check to make for each partition
        (`allow_any_partition`: none).
        """

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to the topic; its offsets are then neither deleted nor expired."""

    def offset_expires_at(self, commit_timestamp_ms: int, retention_ms: int) -> int | None:
        """When an offset without its own expire timestamp expires, in wall time milliseconds; None: not while the group
        is in its current state (Kafka: ``OffsetExpirationCondition``).
        """

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group, but not its offsets."""

    def on_loaded(self, shard: GroupShard) -> None:
        """The whole log is replayed: start the members' timers."""

    def on_unloaded(self, shard: GroupShard) -> None:
        """The shard is given up: cancel the timers and complete waiting requests with NOT_COORDINATOR."""

    def on_removed(self, shard: GroupShard) -> None:
        """The group is deleted or converted: cancel its timers."""

    def on_topics_changed(self, shard: GroupShard, topics: Collection[str]) -> None:
        """Topics of those names were created, changed or deleted."""
