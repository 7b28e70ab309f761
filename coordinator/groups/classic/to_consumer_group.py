"""Passes requests of the classic protocol on to a consumer group, where a member of the classic protocol sends them.

The modules of consumer groups are imported on first use: they import those of classic groups, to convert them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from oncelog.coordinator.groups.classic import responses
from oncelog.coordinator.groups.group import CONSUMER
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.group import Group
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.promise import Promise
    from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(
    shard: GroupShard, group: Group, request: JoinGroupRequest, client: Client
) -> JoinGroupResponse | Promise[JoinGroupResponse]:
    if group.group_type == CONSUMER:
        from oncelog.coordinator.groups.consumer import classic_members

        return classic_members.join(shard, cast("ConsumerGroup", group), request, client)
    return responses.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def sync(
    shard: GroupShard, group: Group, request: SyncGroupRequest, client: Client
) -> SyncGroupResponse | Promise[SyncGroupResponse]:
    if group.group_type == CONSUMER:
        from oncelog.coordinator.groups.consumer import classic_members

        return classic_members.sync(shard, cast("ConsumerGroup", group), request, client)
    return responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID)


def heartbeat(
    shard: GroupShard, group: Group, request: HeartbeatRequest, client: Client
) -> HeartbeatResponse:
    if group.group_type == CONSUMER:
        from oncelog.coordinator.groups.consumer import classic_members

        return classic_members.heartbeat(shard, cast("ConsumerGroup", group), request, client)
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def leave(shard: GroupShard, group: Group, request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    if group.group_type == CONSUMER:
        from oncelog.coordinator.groups.consumer import classic_members

        return classic_members.remove(shard, cast("ConsumerGroup", group), request, client)
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
