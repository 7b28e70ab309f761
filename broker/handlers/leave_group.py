"""LeaveGroup (API key 13): removes members from a classic group: one before version 3, any number since.

Source: ``KafkaApis.handleLeaveGroupRequest``, ``GroupCoordinatorService.leaveGroup``, ``LeaveGroupResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.client import client_of
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    from oncelog.coordinator.groups.classic.leave import SEVERAL_MEMBERS_VERSION, leave

    client = client_of(context)
    has_member_rows = context.api_version >= SEVERAL_MEMBERS_VERSION

    def step(shard: GroupShard) -> LeaveGroupResponse:
        response = leave(shard, request, client)
        if has_member_rows or response.error_code:
            return response
        return LeaveGroupResponse(error_code=response.members[0].error_code)

    def error_response(error: KafkaError) -> LeaveGroupResponse:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID and has_member_rows:
            return LeaveGroupResponse(
                members=[
                    MemberResponse(member.member_id, member.group_instance_id, error.code)
                    for member in request.members
                ]
            )
        return LeaveGroupResponse(error_code=error.code)

    return services.groups.serve(request.group_id, step, error_response)
