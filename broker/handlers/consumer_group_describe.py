"""ConsumerGroupDescribe (API key 69): describes consumer groups and their members, with current and target assignments.

- Version 1 adds the type of each member (KIP-1099).
- GROUP_ID_NOT_FOUND if the group does not exist or is a classic group: clients then send DescribeGroups.
- UNSUPPORTED_VERSION while ConsumerGroupHeartbeat has that error.

Source: ``KafkaApis.handleConsumerGroupDescribe``, ``GroupCoordinatorService.consumerGroupDescribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.described_groups import GroupKind, describe_groups
from oncelog.broker.metadata.features import is_consumer_protocol_enabled
from oncelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.modern.described import Described
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    is_enabled = is_consumer_protocol_enabled(services.metadata.image, services.config.current)
    return describe_groups(services, KIND, context, is_enabled=is_enabled)


def _describe(shard: GroupShard, group_id: str) -> Described[DescribedGroup]:
    from oncelog.coordinator.groups.consumer.describe import describe

    return describe(shard, group_id)


def _topics(group: DescribedGroup) -> Iterable[str]:
    return (
        row.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for row in assignment.topic_partitions
    )


KIND = GroupKind(ConsumerGroupDescribeResponse, DescribedGroup, _describe, _topics)
