"""DescribeGroups (API key 15): describes classic groups and their members.

A group that does not exist is described as dead; from version 6 on it has an error. Source:
``KafkaApis.handleDescribeGroupsRequest``, ``GroupCoordinatorService.describeGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.handlers.client import client_of
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, NOT_ASKED
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Pending[DescribeGroupsResponse]:
    def describe(
        group_ids: list[str],
    ) -> DescribeGroupsResponse | Pending[DescribeGroupsResponse]:
        return _describe(services, group_ids, request, context)

    return chunked_by_row(request.groups, describe, lambda response: response.groups, same=str)


def _describe(
    services: Services, group_ids: list[str], request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Pending[DescribeGroupsResponse]:
    shards: dict[int, GroupShard] = {}

    def response() -> DescribeGroupsResponse:
        return _described(services, group_ids, request, context, shards)

    first = response()
    return services.groups.runtime.respond_read(
        list(shards.values()), first, lambda error: _error_response(group_ids, error), response
    )


def _described(
    services: Services,
    group_ids: list[str],
    request: DescribeGroupsRequest,
    context: RequestContext,
    shards: dict[int, GroupShard],
) -> DescribeGroupsResponse:
    """Return the response; ``shards`` gets the shards that it is about."""
    from oncelog.coordinator.groups.admin import describe_groups

    client = client_of(context)
    groups: list[DescribedGroup] = []
    may_describe = services.authorization.predicate(context, DESCRIBE, GROUP_RESOURCE)
    for group_id in group_ids:
        if not may_describe(group_id):
            groups.append(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id))
            continue
        try:
            shard = services.groups.shard(group_id, empty_allowed=True)
            shards[shard.partition] = shard
            groups += describe_groups(shard, [group_id], client)
        except KafkaError as error:
            groups.append(DescribedGroup(to_client_error(error).code, None, group_id))
    for group in groups:
        are_wanted = request.include_authorized_operations and not group.error_code
        group.authorized_operations = (
            services.authorization.operations(context, GROUP_RESOURCE, group.group_id)
            if are_wanted
            else NOT_ASKED
        )
    return DescribeGroupsResponse(groups=groups)


def _error_response(group_ids: list[str], error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(error.code, None, group_id) for group_id in group_ids]
    )
