"""DeleteGroups (API key 42): deletes groups without members, and their offsets.

The groups of one coordinator partition are deleted together or not at all, but a long request goes part by part. The
states of a share group's partitions, and many offsets, are deleted first; where that fails, the group stays. Whoever
asks for a group meanwhile gets COORDINATOR_LOAD_IN_PROGRESS. Source:
``KafkaApis.handleDeleteGroupsRequest``, ``GroupCoordinatorService.deleteGroups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_by_part
from oncelog.broker.requests.authorization import DELETE, GROUP_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import in_slices
from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.group import SHARE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.groups.shard import GroupShard

    ByPartition = dict[int, tuple[GroupShard, list[str]]]
    """Partition of the groups' topic -> its shard and the groups to delete there."""

OFFSETS_AT_ONCE = 100
"""Offsets that are deleted together with their group."""


def handle(
    services: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    def delete(group_ids: list[str]) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
        return _delete_some(services, DeleteGroupsRequest(group_ids), context)

    group_ids = list(dict.fromkeys(request.groups_names))
    return chunked_by_part(group_ids, delete, lambda response: response.results)


def _delete_some(
    services: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    results: dict[str, DeletableGroupResult] = {}
    by_partition: ByPartition = {}
    may_delete = services.authorization.predicate(context, DELETE, GROUP_RESOURCE)
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
    if any(
        _is_large(shard, group_id) for shard, group_ids in by_partition.values() for group_id in group_ids
    ):
        return Pending(_delete_slowly(services, request, by_partition, results))
    return services.groups.runtime.respond(
        *_delete(request, by_partition, results), lambda error: _error_response(request, error)
    )


def _is_large(shard: GroupShard, group_id: str) -> bool:
    """Tell whether one step cannot delete the group: it has states elsewhere, or many offsets."""
    from oncelog.coordinator.groups.offsets import has_many_offsets

    return _is_share_group(shard, group_id) or has_many_offsets(shard, group_id, OFFSETS_AT_ONCE)


def _is_share_group(shard: GroupShard, group_id: str) -> bool:
    return group_id in shard.groups and shard.groups[group_id].group_type == SHARE


def _delete(
    request: DeleteGroupsRequest, by_partition: ByPartition, results: dict[str, DeletableGroupResult]
) -> tuple[list[GroupShard], DeleteGroupsResponse]:
    """Delete groups. Returns the changed shards and the response."""
    from oncelog.coordinator.groups.admin import delete_groups

    for shard, group_ids in by_partition.values():
        try:
            deleted = delete_groups(shard, group_ids)
        except KafkaError as error:
            deleted = [DeletableGroupResult(group_id, to_client_error(error).code) for group_id in group_ids]
        results.update((result.group_id, result) for result in deleted)
    response = DeleteGroupsResponse(
        results=[results[group_id] for group_id in dict.fromkeys(request.groups_names)]
    )
    return [shard for shard, _ in by_partition.values()], response


async def _delete_slowly(
    services: Services,
    request: DeleteGroupsRequest,
    by_partition: ByPartition,
    results: dict[str, DeletableGroupResult],
) -> DeleteGroupsResponse:
    """Delete the states of share groups' partitions, and the offsets of other groups; then the groups. A group stays
    where that fails.
    """
    from oncelog.coordinator.groups.admin import delete_offsets_of
    from oncelog.coordinator.groups.share.offsets import delete_all

    left: ByPartition = {}
    for partition, (before, group_ids) in by_partition.items():
        for group_id in group_ids:
            try:
                if not _is_share_group(before, group_id):
                    with services.groups.held(group_id) as shard:
                        await in_slices(delete_offsets_of(shard, group_id), steps_max=1)
                else:
                    states = delete_all(services.groups.shard(group_id), group_id)
                    for error in (await services.share_group_states.delete(group_id, states)).values():
                        raise error
                shard = services.groups.shard(group_id, empty_allowed=True)
            except KafkaError as error:
                results[group_id] = DeletableGroupResult(group_id, to_client_error(error).code)
            else:
                left.setdefault(partition, (shard, []))[1].append(group_id)
    shards, response = _delete(request, left, results)
    return await services.groups.runtime.respond_durable(
        shards, response, lambda error: _error_response(request, error)
    )


def _error_response(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    group_ids = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, error.code) for group_id in group_ids]
    )
