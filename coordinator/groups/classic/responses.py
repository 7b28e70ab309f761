"""Responses to JoinGroup and SyncGroup of a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from oncelog.wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember

NULL_PROTOCOL_VERSION = 7


class JoinPromise(Promise[JoinGroupResponse]):
    """The promise of a response to a JoinGroup of ``version``."""

    __slots__ = ("_version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self._version = version

    def resolve(self, value: JoinGroupResponse) -> None:
        super().resolve(as_versioned(value, self._version))


def as_versioned(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """The response with a missing protocol name as null or, in versions that forbid null, as empty."""
    response.protocol_name = response.protocol_name or (None if version >= NULL_PROTOCOL_VERSION else "")
    return response


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def joined(
    group: ClassicGroup, member_id: str, members: Sequence[JoinGroupResponseMember] = ()
) -> JoinGroupResponse:
    """The response to a member of the group's generation; only the leader gets ``members``."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type_or_none,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=list(members),
    )


def members_for_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """All members with their metadata for the group's protocol, from which the leader assigns."""
    return [
        JoinGroupResponseMember(
            member.member_id, member.group_instance_id, member.metadata(group.protocol_name)
        )
        for member in group.members.values()
    ]


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def synced(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    """The response with the member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type_or_none,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def await_sync(member: ClassicGroupMember, promise: Promise[SyncGroupResponse]) -> None:
    """``promise`` is for the member's newest SyncGroup; its client has given up an earlier one."""
    complete_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_promise = promise


def complete_sync(member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Respond to the member's SyncGroup; return whether one waited."""
    promise = member.sync_promise
    if promise is None:
        return False
    member.sync_promise = None
    promise.resolve(response)
    return True
