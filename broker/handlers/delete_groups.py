"""DeleteGroups (API key 42): groups without members go, with their offsets; each gets a code.

The groups of one shard go together or not at all. Source: ``KafkaApis.handleDeleteGroupsRequest``,
``GroupCoordinatorService.deleteGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.errors import to_client_error
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    from oncelog.coordinator.groups.admin import delete_groups

    rows: dict[str, DeletableGroupResult] = {}
    by_partition: dict[int, tuple[GroupShard, list[str]]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        try:
            shard = services.groups.shard(group_id, empty_allowed=True)
        except KafkaError as error:
            rows[group_id] = DeletableGroupResult(group_id, to_client_error(error).code)
        else:
            by_partition.setdefault(shard.partition, (shard, []))[1].append(group_id)
    for shard, group_ids in by_partition.values():
        try:
            results = delete_groups(shard, group_ids)
        except KafkaError as error:
            results = [DeletableGroupResult(group_id, to_client_error(error).code) for group_id in group_ids]
        rows.update((row.group_id, row) for row in results)
    answer = DeleteGroupsResponse(results=[rows[name] for name in dict.fromkeys(request.groups_names)])
    shards = [shard for shard, _ in by_partition.values()]
    return services.groups.answer_of(shards, answer, lambda error: _refused(request, error))


def _refused(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[DeletableGroupResult(name, error.code) for name in names])
