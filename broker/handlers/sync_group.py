"""SyncGroup (API key 14): stores the assignments that the leader of a classic group sends, and returns each member's.

The response waits for the leader. From version 5 on the request must name the protocol. Source:
``KafkaApis.handleSyncGroupRequest``.
"""

from __future__ import annotations

from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.rights import check_rights
from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_VERSION = 5


def handle(
    services: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    from oncelog.coordinator.groups.classic.sync import sync

    if context.api_version >= PROTOCOL_VERSION and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_rights(services.authorization, context)
    client = client_of(context)
    return services.groups.serve(
        request.group_id,
        lambda shard: sync(shard, request, client),
        _error_response,
        sender=(request.member_id, context.connection),
    )


def _error_response(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
