"""Requests of the classic protocol that meet a consumer group: what a member of the classic protocol asks of it.

The modules of consumer groups are imported here when one is met: they know classic groups, to convert them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coordinator.groups.classic import answers
from coordinator.groups.group import CONSUMER
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from coordinator.groups.consumer.group import ConsumerGroup
    from coordinator.groups.context import Client
    from coordinator.groups.group import Group
    from coordinator.groups.shard import GroupShard
    from coordinator.later import Later
    from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(
    shard: GroupShard, group: Group, request: JoinGroupRequest, client: Client
) -> JoinGroupResponse | Later[JoinGroupResponse]:
    if group.kind == CONSUMER:
        from coordinator.groups.consumer import classic_members

        return classic_members.join(shard, cast("ConsumerGroup", group), request, client)
    return answers.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def sync(
    shard: GroupShard, group: Group, request: SyncGroupRequest, client: Client
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    if group.kind == CONSUMER:
        from coordinator.groups.consumer import classic_members

        return classic_members.sync(shard, cast("ConsumerGroup", group), request, client)
    return answers.sync_error(ErrorCode.UNKNOWN_MEMBER_ID)


def heartbeat(
    shard: GroupShard, group: Group, request: HeartbeatRequest, client: Client
) -> HeartbeatResponse:
    if group.kind == CONSUMER:
        from coordinator.groups.consumer import classic_members

        return classic_members.heartbeat(shard, cast("ConsumerGroup", group), request, client)
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def leave(shard: GroupShard, group: Group, request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    if group.kind == CONSUMER:
        from coordinator.groups.consumer import classic_members

        return classic_members.remove(shard, cast("ConsumerGroup", group), request, client)
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
