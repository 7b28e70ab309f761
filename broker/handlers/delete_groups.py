"""DeleteGroups (API key 42): deletes groups without members, and their offsets.

The groups of one coordinator partition are deleted together or not at all. Source:
``KafkaApis.handleDeleteGroupsRequest``, ``GroupCoordinatorService.deleteGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import DELETE, GROUP_RESOURCE
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    from oncelog.coordinator.groups.admin import delete_groups

    results: dict[str, DeletableGroupResult] = {}
    by_partition: dict[int, tuple[GroupShard, list[str]]] = {}
    may_delete = services.authorization.filter(context, DELETE, GROUP_RESOURCE)
    for group_id in dict.fromkeys(request.groups_names):
        if not may_delete(group_id):
            results[group_id] = DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            continue
        try:
            shard = services.groups.shard(group_id, empty_allowed=True)
        except KafkaError as error:
            results[group_id] = DeletableGroupResult(group_id, to_client_error(error).code)
        else:
            by_partition.setdefault(shard.partition, (shard, []))[1].append(group_id)
    for shard, group_ids in by_partition.values():
        try:
            deleted = delete_groups(shard, group_ids)
        except KafkaError as error:
            deleted = [DeletableGroupResult(group_id, to_client_error(error).code) for group_id in group_ids]
        results.update((result.group_id, result) for result in deleted)
    response = DeleteGroupsResponse(
        results=[results[group_id] for group_id in dict.fromkeys(request.groups_names)]
    )
    shards = [shard for shard, _ in by_partition.values()]
    return services.groups.runtime.respond(shards, response, lambda error: _error_response(request, error))


def _error_response(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    group_ids = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, error.code) for group_id in group_ids]
    )
