"""`GroupReplay`: replays the records that consumer groups and share groups both have.

A tombstone of an unknown key is ignored: compaction may have removed the record before it. Source: the ``replay``
methods of Kafka's ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from oncelog.coordinator.groups.modern.group import NO_TARGET_EPOCH, ModernGroup
from oncelog.coordinator.groups.modern.member import LEAVING_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.coordinator.groups.group import Group
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.stored.groups import TopicPartition

G = TypeVar("G", bound=ModernGroup[Any])


class GroupReplay(Generic[G]):
    """Replays into groups of one class, whose record types are the keys and values."""

    __slots__ = ("_class", "_make")

    def __init__(self, group_class: type[G], make: Callable[[str], G]) -> None:
        self._class = group_class
        self._make = make

    def group(self, shard: GroupShard, group_id: str) -> G | None:
        existing = shard.groups.get(group_id)
        return existing if isinstance(existing, self._class) else None

    def group_or_new(self, shard: GroupShard, group_id: str) -> G:
        existing = self.group(shard, group_id)
        if existing is not None:
            return existing
        self.make_room(shard, group_id)
        group = self._make(group_id)
        shard.groups[group_id] = cast("Group", group)
        return group

    def make_room(self, shard: GroupShard, group_id: str) -> None:
        """Remove a group of another kind that a new one may replace."""
        assert group_id not in shard.groups, f"{group_id} is a group of another type"

    def replay_group(self, shard: GroupShard, key: Any, value: Any, offset: int, producer_id: int) -> None:
        if value is not None:
            group = self.group_or_new(shard, key.group_id)
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
            return
        existing = self.group(shard, key.group_id)
        if existing is not None:
            assert not existing.members, f"{key.group_id} is deleted, but has members"
            assert not existing.targets, f"{key.group_id} is deleted, but has a target assignment"
            del shard.groups[key.group_id]
            existing.on_removed(shard)

    def replay_target(self, shard: GroupShard, key: Any, value: Any, offset: int, producer_id: int) -> None:
        if value is not None:
            assignment = partitions_of(value.topic_partitions)
            self.group_or_new(shard, key.group_id).put_target(key.member_id, assignment)
            return
        existing = self.group(shard, key.group_id)
        if existing is not None:
            existing.put_target(key.member_id, None)

    def replay_target_epoch(
        self, shard: GroupShard, key: Any, value: Any, offset: int, producer_id: int
    ) -> None:
        if value is not None:
            group = self.group_or_new(shard, key.group_id)
            group.target_epoch = value.assignment_epoch
            group.target_timestamp_ms = value.assignment_timestamp
            return
        existing = self.group(shard, key.group_id)
        if existing is not None:
            existing.target_epoch = NO_TARGET_EPOCH
            existing.target_timestamp_ms = 0

    def remove_member(self, shard: GroupShard, group_id: str, member_id: str) -> bool:
        """Replay the tombstone of a member. Returns whether the group had it."""
        existing = self.group(shard, group_id)
        if existing is None or member_id not in existing.members:
            return False
        # While loading, compaction may already have removed the tombstone of its current assignment.
        left = existing.members[member_id].epoch == LEAVING_EPOCH or not shard.loaded
        assert left, f"{member_id} is deleted, but has a current assignment"
        assert member_id not in existing.targets, f"{member_id} is deleted, but has a target assignment"
        existing.remove_member(member_id)
        return True


def partitions_of(rows: Iterable[TopicPartition]) -> dict[bytes, frozenset[int]]:
    return {row.topic_id: frozenset(row.partitions) for row in rows}
