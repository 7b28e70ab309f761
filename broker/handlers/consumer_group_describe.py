"""ConsumerGroupDescribe (API key 69): consumer groups with their members, what these have and what they shall have.

- Version 1 says of each member which protocol it speaks (KIP-1099).
- A group that is not there, or is a classic group, is GROUP_ID_NOT_FOUND: clients ask DescribeGroups then.
- Refused with UNSUPPORTED_VERSION where ConsumerGroupHeartbeat is.

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
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
    def describe_some(
        group_ids: list[str],
    ) -> ConsumerGroupDescribeResponse | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
        return _describe(services, group_ids, request)

    return chunked_by_row(request.group_ids, describe_some, lambda response: response.groups, same=str)


def _describe(
    services: Services, group_ids: list[str], request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
    if not is_consumer_protocol_enabled(services.metadata.image, services.config.current):
        return _refused(group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    from oncelog.coordinator.groups.consumer.describe import describe

    rows = []
    shards: dict[int, GroupShard] = {}
    for group_id in group_ids:
        try:
            shard = services.groups.shard(group_id)
            shards[shard.partition] = shard
            row = describe(shard, group_id)
        except KafkaError as error:
            row = DescribedGroup(to_client_error(error).code, None, group_id)
        if request.include_authorized_operations and not row.error_code:
            row.authorized_operations = GROUP_OPERATIONS
        rows.append(row)
    return services.groups.answer_of(
        list(shards.values()),
        ConsumerGroupDescribeResponse(groups=rows),
        lambda error: _refused(group_ids, error),
    )


def _refused(group_ids: list[str], error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(error.code, None, group_id) for group_id in group_ids]
    )
