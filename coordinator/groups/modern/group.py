"""`ModernGroup`: the state that consumer groups and share groups have in common.

The durable fields change only in the ``replay`` modules; `volatile` holds what is not stored. Source: Kafka's
``ModernGroup``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic

from oncelog.coordinator.groups.modern import timers
from oncelog.coordinator.groups.modern.member import M
from oncelog.coordinator.groups.modern.metadata_hash import TopicHashes
from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.modern.records import RecordTypes
    from oncelog.coordinator.groups.shard import GroupShard

INITIAL_EPOCH = 1
NO_TARGET_EPOCH = -1


class VolatileState:
    """State that is lost at a restart; the next heartbeat restores it.

    ``metadata_checked``: whether the group's metadata hash is that of its current topics.
    """

    __slots__ = ("metadata_checked", "topic_hashes")

    def __init__(self) -> None:
        self.metadata_checked = False
        self.topic_hashes = TopicHashes()


class ModernGroup(Generic[M]):
    """``targets``: member id -> target assignment. Only consumer groups have static members."""

    record_types: ClassVar[RecordTypes]

    __slots__ = (
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "static_members",
        "subscriptions",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
        "volatile",
    )

    def __init__(self, group_id: str, volatile: VolatileState) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.static_members: dict[str, str] = {}
        self.subscriptions = Subscriptions()
        self.target_epoch = INITIAL_EPOCH
        self.target_timestamp_ms = 0
        self.targets: dict[str, Assignment] = {}
        self.volatile = volatile

    def member(self, member_id: str) -> M:
        """The member. Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target(self, member: M) -> Assignment:
        """The member's target assignment."""
        return self.targets.get(member.member_id, {})

    # --- coordinator.groups.group.Group

    def is_empty(self) -> bool:
        return not self.members

    def awaited_members(self, kind: str) -> Collection[str]:
        return ()

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def member_ids(self) -> Collection[str]:
        return self.members

    def client_id_of(self, member_id: str) -> str:
        member = self.members.get(member_id)
        return member.client_id if member is not None else ""

    def has_waiting_request(self, member_id: str) -> bool:
        return False

    def expects(self, member_id: str) -> bool:
        return member_id in self.members

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscriptions.has(topic)

    def on_unloaded(self, shard: GroupShard) -> None:
        self.on_removed(shard)

    def on_removed(self, shard: GroupShard) -> None:
        timers.cancel(shard, timers.COMPUTATION, self.group_id)

    def on_topics_changed(self, shard: GroupShard, topics: Collection[str]) -> None:
        """Let the next heartbeat check whether the group must rebalance."""
        self.volatile.topic_hashes.forget(topics)
        if not self.subscriptions.names().isdisjoint(topics):
            self.volatile.metadata_checked = False

    # --- replay

    def put_member(self, new: M) -> None:
        old = self.members.get(new.member_id)
        self.members[new.member_id] = new
        self.on_member_changed(old, new)

    def remove_member(self, member_id: str) -> None:
        self.on_member_changed(self.members.pop(member_id), None)

    def on_member_changed(self, old: M | None, new: M | None) -> None:
        """Count a member that changed, joined (``old`` is None) or left (``new`` is None)."""
        self.subscriptions.replace(old, new)

    def put_target(self, member_id: str, assignment: Assignment | None) -> None:
        """Set or remove a member's target assignment."""
        if assignment is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = assignment
