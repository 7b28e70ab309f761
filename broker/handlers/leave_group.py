"""LeaveGroup (API key 13): members of a classic group go, one before version 3, then any number, each with its code.

Source: ``KafkaApis.handleLeaveGroupRequest``, ``GroupCoordinatorService.leaveGroup``, ``LeaveGroupResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.coordinators.groups import client_of
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    from oncelog.coordinator.groups.classic.leave import SEVERAL_MEMBERS_VERSION, leave

    client = client_of(context)
    several = context.api_version >= SEVERAL_MEMBERS_VERSION

    def step(shard: GroupShard) -> LeaveGroupResponse:
        answer = leave(shard, request, client)
        if several or answer.error_code:
            return answer
        return LeaveGroupResponse(error_code=answer.members[0].error_code)

    def refused(error: KafkaError) -> LeaveGroupResponse:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID and several:
            return LeaveGroupResponse(
                members=[
                    MemberResponse(row.member_id, row.group_instance_id, error.code)
                    for row in request.members
                ]
            )
        return LeaveGroupResponse(error_code=error.code)

    return services.groups.ask(request.group_id, step, refused)
