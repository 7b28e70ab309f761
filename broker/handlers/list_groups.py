"""ListGroups (API key 16): the groups that this node coordinates, of some states and types where asked.

Source: ``GroupCoordinatorService.listGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.errors import to_client_error
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Coroutine[Any, Any, ListGroupsResponse]:
    from oncelog.coordinator.groups.admin import list_groups

    try:
        shards = services.groups.shards()
    except KafkaError as error:
        return _refused(to_client_error(error))
    rows = [row for shard in shards for row in list_groups(shard, request)]
    return services.groups.answer_of(shards, ListGroupsResponse(groups=rows), _refused)


def _refused(error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
