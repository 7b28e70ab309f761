"""Replays the records of consumer groups: their durable state changes only here, and in what all modern groups share.

Source: the ``replay`` methods of Kafka's ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.consumer import timers
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
from oncelog.coordinator.groups.modern.member import LEAVING_EPOCH, MemberState
from oncelog.coordinator.groups.modern.replay import GroupReplay
from oncelog.coordinator.groups.modern.subscriptions import ResolvedRegex
from oncelog.wire.stored import groups as stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.coordinator.groups.consumer.member import PartitionEpochs
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Message


class _ConsumerGroupReplay(GroupReplay[ConsumerGroup]):
    def make_room(self, shard: GroupShard, group_id: str) -> None:
        """A new group replaces a simple classic group, which has only offsets and no record."""
        existing = shard.groups.get(group_id)
        if existing is not None:
            assert isinstance(existing, ClassicGroup), group_id
            assert existing.is_simple(), f"{group_id} is a classic group"
            existing.on_removed(shard)


_common = _ConsumerGroupReplay(ConsumerGroup, ConsumerGroup)


def replay_subscription_metadata(
    shard: GroupShard,
    key: stored.ConsumerGroupPartitionMetadataKey,
    value: stored.ConsumerGroupPartitionMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    group = _common.group(shard, key.group_id) if value is None else _common.group_or_new(shard, key.group_id)
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
        group = _common.group_or_new(shard, key.group_id)
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
    if _common.remove_member(shard, key.group_id, key.member_id):
        timers.cancel_all(shard, key.group_id, key.member_id)


def replay_current(
    shard: GroupShard,
    key: stored.ConsumerGroupCurrentMemberAssignmentKey,
    value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _common.group_or_new(shard, key.group_id)
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
    existing = _common.group(shard, key.group_id)
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
    group = _common.group(shard, key.group_id) if value is None else _common.group_or_new(shard, key.group_id)
    if group is not None:
        resolved = None
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.subscriptions.resolve(key.regular_expression, resolved)


REPLAYS: dict[type[Message], Callable[[Any, Any, Any, int, int], None]] = {
    stored.ConsumerGroupMetadataKey: _common.replay_group,
    stored.ConsumerGroupPartitionMetadataKey: replay_subscription_metadata,
    stored.ConsumerGroupMemberMetadataKey: replay_member,
    stored.ConsumerGroupTargetAssignmentMemberKey: _common.replay_target,
    stored.ConsumerGroupTargetAssignmentMetadataKey: _common.replay_target_epoch,
    stored.ConsumerGroupCurrentMemberAssignmentKey: replay_current,
    stored.ConsumerGroupRegularExpressionKey: replay_regex,
}
