"""ShareGroupDescribe (API key 77): describes share groups and their members, with their assignments.

- GROUP_ID_NOT_FOUND if the group does not exist or is of another type.
- UNSUPPORTED_VERSION while ``share.version`` is 0.

Source: ``KafkaApis.handleShareGroupDescribe``, ``GroupCoordinatorService.shareGroupDescribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.described_groups import GroupKind, describe_groups
from oncelog.broker.metadata.features import are_share_groups_enabled
from oncelog.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.modern.described import Described
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Pending[ShareGroupDescribeResponse]:
    is_enabled = are_share_groups_enabled(services.metadata.image)
    return describe_groups(services, KIND, context, is_enabled=is_enabled)


def _describe(shard: GroupShard, group_id: str) -> Described[DescribedGroup]:
    from oncelog.coordinator.groups.share.describe import describe

    return describe(shard, group_id)


def _topics(group: DescribedGroup) -> Iterable[str]:
    return (row.topic_name for member in group.members for row in member.assignment.topic_partitions)


KIND = GroupKind(ShareGroupDescribeResponse, DescribedGroup, _describe, _topics)
