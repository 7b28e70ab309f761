"""ConsumerGroupDescribe (API key 69): describes consumer groups and their members, with current and target assignments.

- Version 1 adds the type of each member (KIP-1099).
- GROUP_ID_NOT_FOUND if the group does not exist or is a classic group: clients then send DescribeGroups.
- UNSUPPORTED_VERSION while ConsumerGroupHeartbeat has that error.

Source: ``KafkaApis.handleConsumerGroupDescribe``, ``GroupCoordinatorService.consumerGroupDescribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.metadata.features import is_consumer_protocol_enabled
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    def describe_some(
        group_ids: list[str],
    ) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
        return _describe(services, group_ids, request, context)

    return chunked_by_row(request.group_ids, describe_some, lambda response: response.groups, same=str)


def _describe(
    services: Services,
    group_ids: list[str],
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    if not is_consumer_protocol_enabled(services.metadata.image, services.config.current):
        return _error_response(group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    from oncelog.coordinator.groups.consumer.describe import describe

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
        ConsumerGroupDescribeResponse(groups=groups),
        lambda error: _error_response(group_ids, error),
    )


def _without_denied_topics(group: DescribedGroup, may_describe: Callable[[str], bool]) -> DescribedGroup:
    """Return the group, or an error in its place if a member has a topic that the client may not know of."""
    names = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    if all(map(may_describe, names)):
        return group
    return DescribedGroup(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The client may not describe all topics of the group.",
        group.group_id,
    )


def _error_response(group_ids: list[str], error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(error.code, None, group_id) for group_id in group_ids]
    )
