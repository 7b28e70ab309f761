"""Removes members that leave or that missed a deadline.

A static member may leave temporarily (epoch -2): it keeps its assignment until it returns or its session expires. When
the last member of the consumer protocol leaves and the others use the classic one, the group becomes a classic group.
Source: Kafka's ``GroupMetadataManager``, ``consumerGroupLeave``, ``consumerGroupFenceMembers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer import joining, migration, records
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.member import STATIC_LEAVING_EPOCH
from oncelog.coordinator.groups.modern import group_epoch
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def leave(shard: GroupShard, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat with a leaving epoch. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID.
    """
    group = shard.group(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        fence(shard, group, [group.member(request.member_id)])
        return response
    holder = group.static_member(request.instance_id)
    member = joining.member_of_instance(holder, request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        _leave_temporarily(shard, group, member)
    else:
        fence(shard, group, [member])
    return response


def _leave_temporarily(shard: GroupShard, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    away = member._replace(
        epoch=STATIC_LEAVING_EPOCH, pending_revocation={}, assigned=member.assigned_from_epoch_zero()
    )
    shard.commit([records.current_assignment(group.group_id, away)])
    shard.context.log_info(
        "a static member is away",
        group=group.group_id,
        member=member.member_id,
        instance=member.instance_id,
    )


def fence(shard: GroupShard, group: ConsumerGroup, members: Sequence[ConsumerGroupMember]) -> None:
    """Remove the members that left, which must be distinct, and cancel their timers."""
    if not members:
        return
    _fence(shard, group, members)
    for member in members:
        shard.context.log_info("a member left", group=group.group_id, member=member.member_id)


def _fence(shard: GroupShard, group: ConsumerGroup, members: Sequence[ConsumerGroupMember]) -> None:
    if migration.is_to_be_downgraded(shard.context, group, members):
        migration.downgrade(shard, group, leaving=members)
        return
    subscriptions = group.subscriptions.copy()
    new_records = []
    for member in members:
        new_records += records.TYPES.member_tombstones(group.group_id, member.member_id)
        subscriptions.replace(member, None)
    for expression in sorted({member.topic_regex for member in members if member.topic_regex}):
        if expression not in subscriptions.regexes:
            new_records.append(records.regex_tombstone(group.group_id, expression))
            subscriptions.resolve(expression, None)
    new_records += group_epoch.after_leave(shard.context, group, subscriptions, len(members))
    shard.commit(new_records)


def fence_expired(
    shard: GroupShard, group_id: str, member_id: str, reason: str, *, only_at_epoch: int | None = None
) -> None:
    """Remove a member whose timer expired, if it is still in the group and, with ``only_at_epoch``, still at
    that epoch.
    """
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return
    member = group.members.get(member_id)
    if member is not None and only_at_epoch in (None, member.epoch):
        _fence(shard, group, [member])
        shard.context.note_dropped(group_id, member_id, reason)
