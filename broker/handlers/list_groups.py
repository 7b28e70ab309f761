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
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.messages.list_groups import ListedGroup
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Pending[ListGroupsResponse]:
    return chunked_steps(_list_committed(services, request, context))


def _list_committed(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> Steps[ListGroupsResponse | Pending[ListGroupsResponse]]:
    runtime = services.groups.runtime
    try:
        shards = runtime.shards()
        response = yield from _list(services, request, context)
    except KafkaError as error:
        return _error_response(to_client_error(error))
    return runtime.respond_read(
        shards, response, _error_response, lambda: finish(_list(services, request, context))
    )


def _list(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> Steps[ListGroupsResponse]:
    """Make the response, a shard and then a group at each step. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS)."""
    from oncelog.coordinator.groups.admin import GroupFilter, list_groups

    shards = services.groups.runtime.shards()
    wanted = GroupFilter(request)
    groups: list[ListedGroup] = []
    for shard in shards:
        groups += yield from list_groups(shard, wanted)
    if not services.authorization.allows(context, DESCRIBE, *THE_CLUSTER, quiet=True):
        may_describe = services.authorization.predicate(context, DESCRIBE, GROUP_RESOURCE, quiet=True)
        listed, groups = groups, []
        for group in listed:
            if may_describe(group.group_id):
                groups.append(group)
            yield
    return ListGroupsResponse(groups=groups)


def _error_response(error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
