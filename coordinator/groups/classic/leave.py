"""Members that go: by LeaveGroup, or because they were silent for too long (KIP-345, KIP-800)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.groups.classic import answers, handover, rebalance, timers
from coordinator.groups.classic import group as groups  # the module: it imports this one
from coordinator.groups.classic.states import State
from coordinator.groups.errors import as_told
from wire.errors import ErrorCode, KafkaError
from wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.groups.classic.group import ClassicGroup
    from coordinator.groups.classic.member import Member
    from coordinator.groups.context import Client
    from coordinator.groups.shard import GroupShard
    from wire.messages.leave_group import LeaveGroupRequest

SEVERAL_MEMBERS_VERSION = 3


def leave(shard: GroupShard, request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    """Take members out, each by its member id, its instance id, or both; an answer per member.

    Raises KafkaError: UNKNOWN_MEMBER_ID where there is no such group; what the journal raises where the group is empty
    now and that could not be stored.
    """
    group = shard.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
    if not isinstance(group, groups.ClassicGroup):
        return handover.leave(shard, group, request, client)
    if group.state is State.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rows = []
    for row in identities(request, client):
        code = _leave_one(shard, group, row)
        rows.append(MemberResponse(row.member_id, row.group_instance_id, code))
    if any(not row.error_code for row in rows) and group.state is not State.EMPTY:
        try:
            rebalance.prepare_or_complete(shard, group)
        except KafkaError as error:
            raise as_told(error) from error
    return LeaveGroupResponse(members=rows)


def identities(request: LeaveGroupRequest, client: Client) -> Sequence[MemberIdentity]:
    """The members that shall go: before version 3 it is always one."""
    return (
        [MemberIdentity(request.member_id)]
        if client.api_version < SEVERAL_MEMBERS_VERSION
        else request.members
    )


def _leave_one(shard: GroupShard, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id in group.pending_joins:
        group.remove(member_id)
        timers.cancel_session(shard, group, member_id)
        return ErrorCode.NONE
    if not member_id:
        # An administrator removes a static member and does not know its member id.
        if instance_id is None or instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = group.static_members[instance_id]
    try:
        group.check_member(member_id, instance_id)
    except KafkaError as error:
        return error.code
    timers.cancel_session(shard, group, member_id)
    remove(group, group.members[member_id])
    return ErrorCode.NONE


def expire(shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
    """A session is over without a sign of life of its member, or a member id was given out and not used."""
    if member_id in group.pending_joins:
        group.remove(member_id)
    else:
        member = group.members.get(member_id)
        if member is None or member.is_held:
            return
        remove(group, member)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            rebalance.prepare_or_complete(shard, group)
            return
    if group.state is State.PREPARING_REBALANCE and group.all_joined():
        rebalance.complete(shard, group)


def remove(group: ClassicGroup, member: Member) -> None:
    """Drop a member. If it is alive after all and waits for an answer, it shall come again as a new one."""
    group.answer_join(member, answers.join_error(ErrorCode.UNKNOWN_MEMBER_ID))
    answers.answer_sync(member, answers.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
