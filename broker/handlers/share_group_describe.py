"""ShareGroupDescribe (API key 77): describes share groups and their members, with their assignments.

- GROUP_ID_NOT_FOUND if the group does not exist or is of another type.
- UNSUPPORTED_VERSION while ``share.version`` is 0.

Source: ``KafkaApis.handleShareGroupDescribe``, ``GroupCoordinatorService.shareGroupDescribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.metadata.features import are_share_groups_enabled
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Pending[ShareGroupDescribeResponse]:
    def describe_some(
        group_ids: list[str],
    ) -> ShareGroupDescribeResponse | Pending[ShareGroupDescribeResponse]:
        return _describe(services, group_ids, request, context)

    return chunked_by_row(request.group_ids, describe_some, lambda response: response.groups, same=str)


def _describe(
    services: Services, group_ids: list[str], request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Pending[ShareGroupDescribeResponse]:
    if not are_share_groups_enabled(services.metadata.image):
        return _error_response(group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    from oncelog.coordinator.groups.share.describe import describe

    authorization = services.authorization
    may_describe = authorization.filter(context, DESCRIBE, GROUP_RESOURCE)
    groups = []
    shards: dict[int, GroupShard] = {}
    for group_id in group_ids:
        if not may_describe(group_id):
            groups.append(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id))
            continue
        try:
            shard = services.groups.shard(group_id)
            shards[shard.partition] = shard
            group = describe(shard, group_id)
        except KafkaError as error:
            group = DescribedGroup(to_client_error(error).code, None, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorization.operations(context, GROUP_RESOURCE, group_id)
        groups.append(group)
    if authorization.authorizer is not None:
        may_describe_topic = authorization.filter(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
        groups = [_without_denied_topics(group, may_describe_topic) for group in groups]
    return services.groups.runtime.respond(
        list(shards.values()),
        ShareGroupDescribeResponse(groups=groups),
        lambda error: _error_response(group_ids, error),
    )


def _without_denied_topics(group: DescribedGroup, may_describe: Callable[[str], bool]) -> DescribedGroup:
    """Return the group, or an error in its place if a member has a topic that the client may not know of."""
    names = {row.topic_name for member in group.members for row in member.assignment.topic_partitions}
    if all(map(may_describe, names)):
        return group
    return DescribedGroup(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The client may not describe all topics of the group.",
        group.group_id,
    )


def _error_response(group_ids: list[str], error: KafkaError) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(error.code, None, group_id) for group_id in group_ids]
    )
