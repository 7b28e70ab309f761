"""LeaveGroup (13): members leave; from version 3 several at once, static ones too (KIP-345); 5 has a reason
(KIP-800)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(
    Request["LeaveGroupResponse"], api_key=13, kind="request", versions="0-5", flexible="4+"
):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+")
    error_code: int = int16()


class LeaveGroupResponse(Message, api_key=13, kind="response", versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
