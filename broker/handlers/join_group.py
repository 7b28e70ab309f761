"""JoinGroup (API key 11): adds a member to a classic group, and returns the generation with its leader.

The response waits for the other members. If there is no protocol, its name is null from version 7 on, and empty before.
Source: ``KafkaApis.handleJoinGroupRequest``, ``GroupCoordinatorService.joinGroup``.
"""

from __future__ import annotations

from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.authorization import GROUP_RESOURCE, READ
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(
    services: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    from oncelog.coordinator.groups.classic.join import check, join
    from oncelog.coordinator.groups.classic.responses import as_versioned, join_error

    version = context.api_version
    if not services.authorization.allows(context, READ, GROUP_RESOURCE, request.group_id):
        return as_versioned(join_error(ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    code = check(request, services.config.current)
    if code:
        return as_versioned(join_error(code, request.member_id), version)
    client = client_of(context)
    return services.groups.serve(
        request.group_id,
        lambda shard: join(shard, request, client),
        lambda error: as_versioned(join_error(error.code), version),
        sender=(request.member_id, context.connection),
    )
