"""Heartbeat (API key 12): keeps a member in a classic group. An error tells the member to join again.

While the group is being loaded the response has no error. Source: ``GroupCoordinatorService.heartbeat``.
"""

from __future__ import annotations

from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    services: Services, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    from oncelog.coordinator.groups.classic.heartbeat import heartbeat

    client = client_of(context)
    return services.groups.serve(
        request.group_id,
        lambda shard: heartbeat(shard, request, client),
        _error_response,
        sender=(request.member_id, context.connection),
    )


def _error_response(error: KafkaError) -> HeartbeatResponse:
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
