"""What every kind of group can be asked, whatever its protocol (Kafka: ``Group``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

CLASSIC, CONSUMER = "classic", "consumer"


def allow_any_partition(topic: str, topic_id: Uuid, partition: int) -> None:
    """The check that refuses nothing."""


class Group(Protocol):
    """A group. The checks raise KafkaError with what a client is to be told."""

    group_id: str
    kind: str
    """`CLASSIC` or `CONSUMER`, as ListGroups says it in capitalised form."""

    @property
    def state_name(self) -> str:
        """As Kafka's tools show it: ``Stable``, ``PreparingRebalance``, ``Assigning``, ..."""

    @property
    def protocol_type(self) -> str:
        """``consumer``, ``connect``, ...; empty for a group that has only offsets."""

    def has_member(self, member_id: str) -> bool: ...

    def is_empty(self) -> bool: ...

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> Callable[[str, Uuid, int], None]:
        """Whether that member may commit; what is left to check per partition (`allow_any_partition`: nothing)."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets may not be deleted nor expire."""

    def offset_expires_at(self, commit_timestamp_ms: int, retention_ms: int) -> int | None:
        """When an offset without an expiry of its own expires by wall time in milliseconds; None: not while the
        group is as it is (Kafka: ``OffsetExpirationCondition``).
        """

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that make the group, but not its offsets, forgotten."""

    def on_loaded(self, shard: GroupShard) -> None:
        """The log is replayed to its end: deadlines of members begin."""

    def on_unloaded(self, shard: GroupShard) -> None:
        """The shard is given up: deadlines go, parked answers get NOT_COORDINATOR."""

    def on_removed(self, shard: GroupShard) -> None:
        """The group is gone, or another kind takes its place: nothing of it may come due any more."""

    def on_topics_changed(self, shard: GroupShard, topics: Collection[str]) -> None:
        """Topics of those names were made, changed or deleted."""
