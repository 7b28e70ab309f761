"""ShareGroupHeartbeat (API key 76): lets a member join a share group, stay or leave.

KIP-932.

- The client makes its member id, of at most 36 characters.
- Partitions are assigned only once their state in ``__share_group_state`` is initialized, which begins after the first
  heartbeat that subscribes to them.
- UNSUPPORTED_VERSION while ``share.version`` is 0.

Source: ``KafkaApis.handleShareGroupHeartbeat``, ``GroupCoordinatorService.shareGroupHeartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.client import client_of
from oncelog.broker.metadata.features import are_share_groups_enabled
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, READ, TOPIC_RESOURCE, denied
from oncelog.broker.share.responses import is_member_id
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse | Pending[ShareGroupHeartbeatResponse]:
    if not are_share_groups_enabled(services.metadata.image):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services.authorization.require(context, READ, GROUP_RESOURCE, request.group_id)
    if not is_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    may_describe = services.authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)
    for name in request.subscribed_topic_names or ():
        if not may_describe(name):
            return _error_response(denied(DESCRIBE, TOPIC_RESOURCE, name))
    from oncelog.coordinator.groups.share.heartbeat import check, heartbeat

    client = client_of(context)
    try:
        check(request)
    except KafkaError as error:
        return _error_response(error)

    def step(shard: GroupShard) -> ShareGroupHeartbeatResponse:
        result = heartbeat(shard, request, client)
        if result.initialization is not None:
            services.share_group_states.initialize_soon(result.initialization)
        return result.response

    return services.groups.serve(
        request.group_id, step, _error_response, sender=(request.member_id, context.connection)
    )


def _error_response(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
