"""Heartbeat: renews a member's session and tells it to rejoin (``GroupMetadataManager.classicGroupHeartbeat``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import timers, to_consumer_group
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.heartbeat import HeartbeatRequest


def heartbeat(shard: GroupShard, request: HeartbeatRequest, client: Client) -> HeartbeatResponse:
    """Renew the member's session; REBALANCE_IN_PROGRESS in the response if it must rejoin.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, COORDINATOR_NOT_AVAILABLE.
    """
    group = shard.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
    if not isinstance(group, ClassicGroup):
        return to_consumer_group.heartbeat(shard, group, request, client)
    if group.state is ClassicGroupState.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    timers.renew_session(shard, group, group.members[request.member_id])
    rebalances = group.state is ClassicGroupState.PREPARING_REBALANCE
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE)
