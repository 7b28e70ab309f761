"""Replays the records of consumer groups: their durable state changes only here.

A tombstone of an unknown key is ignored: compaction may have removed the record before it. Source: the ``replay``
methods of Kafka's ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.consumer import timers
from oncelog.coordinator.groups.consumer.group import NO_TARGET_EPOCH, ConsumerGroup, ResolvedRegex
from oncelog.coordinator.groups.consumer.member import LEAVING_EPOCH, ConsumerGroupMember
from oncelog.coordinator.groups.consumer.states import MemberState
from oncelog.wire.stored import groups as stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.coordinator.groups.consumer.member import PartitionEpochs
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Message


def _group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    existing = shard.groups.get(group_id)
    return existing if isinstance(existing, ConsumerGroup) else None


def _group_or_new(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """The group. A new one replaces a simple classic group, which has only offsets and no record."""
    existing = shard.groups.get(group_id)
    if isinstance(existing, ConsumerGroup):
        return existing
    if existing is not None:
        assert isinstance(existing, ClassicGroup), group_id
        assert existing.is_simple(), f"{group_id} is a classic group"
        existing.on_removed(shard)
    group = shard.groups[group_id] = ConsumerGroup(group_id)
    return group


def replay_group(
    shard: GroupShard,
    key: stored.ConsumerGroupMetadataKey,
    value: stored.ConsumerGroupMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _group_or_new(shard, key.group_id)
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash
        return
    existing = _group(shard, key.group_id)
    if existing is not None:
        assert not existing.members, f"{key.group_id} is deleted, but has members"
        assert not existing.targets, f"{key.group_id} is deleted, but has a target assignment"
        del shard.groups[key.group_id]
        existing.on_removed(shard)


def replay_subscription_metadata(
    shard: GroupShard,
    key: stored.ConsumerGroupPartitionMetadataKey,
    value: stored.ConsumerGroupPartitionMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    group = _group(shard, key.group_id) if value is None else _group_or_new(shard, key.group_id)
    if group is not None:
        group.has_subscription_metadata = value is not None


def replay_member(
    shard: GroupShard,
    key: stored.ConsumerGroupMemberMetadataKey,
    value: stored.ConsumerGroupMemberMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _group_or_new(shard, key.group_id)
        group.put_member(
            group.members.get(key.member_id, ConsumerGroupMember(key.member_id))._replace(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
                topic_regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                assignor=value.server_assignor,
                classic=value.classic_member_metadata,
            )
        )
        return
    existing = _group(shard, key.group_id)
    if existing is not None and key.member_id in existing.members:
        # While loading, compaction may already have removed the tombstone of its current assignment.
        left = existing.members[key.member_id].epoch == LEAVING_EPOCH or not shard.loaded
        assert left, f"{key.member_id} is deleted, but has a current assignment"
        assert key.member_id not in existing.targets, (
            f"{key.member_id} is deleted, but has a target assignment"
        )
        existing.remove_member(key.member_id)
        timers.cancel_all(shard, key.group_id, key.member_id)


def replay_target(
    shard: GroupShard,
    key: stored.ConsumerGroupTargetAssignmentMemberKey,
    value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        rows = {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions}
        _group_or_new(shard, key.group_id).put_target(key.member_id, rows)
        return
    existing = _group(shard, key.group_id)
    if existing is not None:
        existing.put_target(key.member_id, None)


def replay_target_epoch(
    shard: GroupShard,
    key: stored.ConsumerGroupTargetAssignmentMetadataKey,
    value: stored.ConsumerGroupTargetAssignmentMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _group_or_new(shard, key.group_id)
        group.target_epoch = value.assignment_epoch
        group.target_timestamp_ms = value.assignment_timestamp
        return
    existing = _group(shard, key.group_id)
    if existing is not None:
        existing.target_epoch = NO_TARGET_EPOCH
        existing.target_timestamp_ms = 0


def replay_current(
    shard: GroupShard,
    key: stored.ConsumerGroupCurrentMemberAssignmentKey,
    value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _group_or_new(shard, key.group_id)
        group.put_member(
            group.members.get(key.member_id, ConsumerGroupMember(key.member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState.stored(value.state),
                assigned=_partition_epochs(value.assigned_partitions, value.member_epoch),
                pending_revocation=_partition_epochs(value.partitions_pending_revocation, value.member_epoch),
            )
        )
        return
    existing = _group(shard, key.group_id)
    if existing is not None and key.member_id in existing.members:
        member = existing.members[key.member_id]
        existing.put_member(
            member._replace(
                epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, pending_revocation={}
            )
        )


def _partition_epochs(rows: Iterable[stored.TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """Partitions with their assignment epochs. Brokers before 4.3 stored none: then the member epoch stands for all."""
    by_topic = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            by_topic[row.topic_id] = dict.fromkeys(row.partitions, max(member_epoch, 0))
        else:
            by_topic[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return by_topic


def replay_regex(
    shard: GroupShard,
    key: stored.ConsumerGroupRegularExpressionKey,
    value: stored.ConsumerGroupRegularExpressionValue | None,
    offset: int,
    producer_id: int,
) -> None:
    group = _group(shard, key.group_id) if value is None else _group_or_new(shard, key.group_id)
    if group is not None:
        resolved = None
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.subscriptions.resolve(key.regular_expression, resolved)


REPLAYS: dict[type[Message], Callable[[Any, Any, Any, int, int], None]] = {
    stored.ConsumerGroupMetadataKey: replay_group,
    stored.ConsumerGroupPartitionMetadataKey: replay_subscription_metadata,
    stored.ConsumerGroupMemberMetadataKey: replay_member,
    stored.ConsumerGroupTargetAssignmentMemberKey: replay_target,
    stored.ConsumerGroupTargetAssignmentMetadataKey: replay_target_epoch,
    stored.ConsumerGroupCurrentMemberAssignmentKey: replay_current,
    stored.ConsumerGroupRegularExpressionKey: replay_regex,
}
