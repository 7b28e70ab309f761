"""ConsumerGroupDescribe (API key 69): describes consumer groups and their members, with current and target assignments.

- Version 1 adds the type of each member (KIP-1099).
- GROUP_ID_NOT_FOUND if the group does not exist or is a classic group: clients then send DescribeGroups.
- UNSUPPORTED_VERSION while ConsumerGroupHeartbeat has that error.

Source: ``KafkaApis.handleConsumerGroupDescribe``, ``GroupCoordinatorService.consumerGroupDescribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import GROUP_OPERATIONS
from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.metadata.features import is_consumer_protocol_enabled
from oncelog.coordinator.groups.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    def describe_some(
        group_ids: list[str],
    ) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
        return _describe(services, group_ids, request)

    return chunked_by_row(request.group_ids, describe_some, lambda response: response.groups, same=str)


def _describe(
    services: Services, group_ids: list[str], request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    if not is_consumer_protocol_enabled(services.metadata.image, services.config.current):
        return _error_response(group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    from oncelog.coordinator.groups.consumer.describe import describe

    groups = []
    shards: dict[int, GroupShard] = {}
    for group_id in group_ids:
        try:
            shard = services.groups.shard(group_id)
            shards[shard.partition] = shard
            group = describe(shard, group_id)
        except KafkaError as error:
            group = DescribedGroup(to_client_error(error).code, None, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        groups.append(group)
    return services.groups.runtime.respond(
        list(shards.values()),
        ConsumerGroupDescribeResponse(groups=groups),
        lambda error: _error_response(group_ids, error),
    )


def _error_response(group_ids: list[str], error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(error.code, None, group_id) for group_id in group_ids]
    )
