"""Replays the records of share groups: their durable state changes only here, and in what all modern groups share.

Source: the ``replay`` methods of Kafka's ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.modern.member import LEAVING_EPOCH, MemberState
from oncelog.coordinator.groups.modern.replay import GroupReplay, partitions_of
from oncelog.coordinator.groups.share import timers
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.member import ShareGroupMember
from oncelog.coordinator.groups.share.state_partitions import StatePartitions, TopicState
from oncelog.wire.stored import groups as stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Message, Uuid

_common = GroupReplay(ShareGroup, ShareGroup)


def replay_member(
    shard: GroupShard,
    key: stored.ShareGroupMemberMetadataKey,
    value: stored.ShareGroupMemberMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _common.group_or_new(shard, key.group_id)
        group.put_member(
            group.members.get(key.member_id, ShareGroupMember(key.member_id))._replace(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
            )
        )
    elif _common.remove_member(shard, key.group_id, key.member_id):
        timers.cancel_session(shard, key.group_id, key.member_id)


def replay_current(
    shard: GroupShard,
    key: stored.ShareGroupCurrentMemberAssignmentKey,
    value: stored.ShareGroupCurrentMemberAssignmentValue | None,
    offset: int,
    producer_id: int,
) -> None:
    if value is not None:
        group = _common.group_or_new(shard, key.group_id)
        group.put_member(
            group.members.get(key.member_id, ShareGroupMember(key.member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState.stored(value.state),
                assigned=partitions_of(value.assigned_partitions),
            )
        )
        return
    existing = _common.group(shard, key.group_id)
    if existing is not None and key.member_id in existing.members:
        member = existing.members[key.member_id]
        existing.put_member(member._replace(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}))


def replay_state_partitions(
    shard: GroupShard,
    key: stored.ShareGroupStatePartitionMetadataKey,
    value: stored.ShareGroupStatePartitionMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    now_ms = shard.context.now_ms()
    if value is not None:
        partitions = StatePartitions(
            _topics(value.initializing_topics),
            _topics(value.initialized_topics),
            frozenset(row.topic_id for row in value.deleting_topics),
        )
        _common.group_or_new(shard, key.group_id).put_state_partitions(partitions, now_ms)
        return
    existing = _common.group(shard, key.group_id)
    if existing is not None:
        existing.put_state_partitions(None, now_ms)


def _topics(rows: Iterable[stored.TopicPartitionsInfo]) -> dict[Uuid, TopicState]:
    return {row.topic_id: TopicState(row.topic_name, frozenset(row.partitions)) for row in rows}


REPLAYS: dict[type[Message], Callable[[Any, Any, Any, int, int], None]] = {
    stored.ShareGroupMetadataKey: _common.replay_group,
    stored.ShareGroupMemberMetadataKey: replay_member,
    stored.ShareGroupTargetAssignmentMemberKey: _common.replay_target,
    stored.ShareGroupTargetAssignmentMetadataKey: _common.replay_target_epoch,
    stored.ShareGroupCurrentMemberAssignmentKey: replay_current,
    stored.ShareGroupStatePartitionMetadataKey: replay_state_partitions,
}
