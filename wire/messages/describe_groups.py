"""DescribeGroups (15): classic groups with their members.

Version 3 adds authorized operations (KIP-430), 4 static members (KIP-345), 6 GROUP_ID_NOT_FOUND with an error
message (KIP-1043).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(
    Request["DescribeGroupsResponse"], api_key=15, kind="request", versions="0-6", flexible="5+"
):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, api_key=15, kind="response", versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
