"""Requests of the classic protocol that meet a consumer group: what a member of the classic protocol asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.groups.classic import answers
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
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
    return answers.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def sync(
    shard: GroupShard, group: Group, request: SyncGroupRequest, client: Client
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    return answers.sync_error(ErrorCode.UNKNOWN_MEMBER_ID)


def heartbeat(
    shard: GroupShard, group: Group, request: HeartbeatRequest, client: Client
) -> HeartbeatResponse:
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def leave(shard: GroupShard, group: Group, request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
