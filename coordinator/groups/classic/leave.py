"""LeaveGroup: members leave or are removed (KIP-345, KIP-800; ``GroupMetadataManager.classicGroupLeave``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.classic import rebalance, removal, timers, to_consumer_group
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.leave_group import LeaveGroupRequest

SEVERAL_MEMBERS_VERSION = 3
NO_REASON = "not given"


def leave(shard: GroupShard, request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    """Remove members, each by its member id, its instance id, or both; the response has a row for each.

    Raises KafkaError: UNKNOWN_MEMBER_ID if the group does not exist; the log's error, translated, if the group is now
    empty and that could not be stored.
    """
    group = shard.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
    if not isinstance(group, ClassicGroup):
        return to_consumer_group.leave(shard, group, request, client)
    if group.state is ClassicGroupState.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rows = []
    for row in _identities(request, client):
        code = _remove_member(shard, group, row)
        rows.append(MemberResponse(row.member_id, row.group_instance_id, code))
    if any(not row.error_code for row in rows) and group.state is not ClassicGroupState.EMPTY:
        try:
            rebalance.prepare_or_complete(shard, group, "members left")
        except KafkaError as error:
            raise to_client_error(error) from error
    return LeaveGroupResponse(members=rows)


def _identities(request: LeaveGroupRequest, client: Client) -> Sequence[MemberIdentity]:
    """The members to remove: before version 3 always one."""
    return (
        [MemberIdentity(request.member_id)]
        if client.api_version < SEVERAL_MEMBERS_VERSION
        else request.members
    )


def _remove_member(shard: GroupShard, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
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
    removal.remove(group, group.members[member_id])
    shard.context.log_info(
        "a member left", group=group.group_id, member=member_id, reason=identity.reason or NO_REASON
    )
    return ErrorCode.NONE
