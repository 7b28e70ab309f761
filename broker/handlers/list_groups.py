"""ListGroups (API key 16): lists the groups that this node coordinates, filtered by state and type.

Source: ``GroupCoordinatorService.listGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, THE_CLUSTER
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.messages.list_groups import ListedGroup
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Pending[ListGroupsResponse]:
    return chunked_steps(_list(services, request, context))


def _list(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> Steps[ListGroupsResponse | Pending[ListGroupsResponse]]:
    """Make the response, a shard and then a group at each step."""
    from oncelog.coordinator.groups.admin import GroupFilter, list_groups

    try:
        shards = services.groups.runtime.shards()
    except KafkaError as error:
        return _error_response(to_client_error(error))
    wanted = GroupFilter(request)
    groups: list[ListedGroup] = []
    for shard in shards:
        groups += list_groups(shard, wanted)
        if shard.groups:
            yield
    if not services.authorization.allows(context, DESCRIBE, *THE_CLUSTER, quiet=True):
        may_describe = services.authorization.predicate(context, DESCRIBE, GROUP_RESOURCE, quiet=True)
        listed, groups = groups, []
        for group in listed:
            if may_describe(group.group_id):
                groups.append(group)
            yield
    return services.groups.runtime.respond(shards, ListGroupsResponse(groups=groups), _error_response)


def _error_response(error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
