"""OffsetDelete (API key 47): forgets offsets of topics that no member of the group reads (KIP-496).

Source: ``KafkaApis.handleOffsetDeleteRequest``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.handlers.topic_rows import merged
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
    from oncelog.coordinator.groups.offsets import delete_offsets

    unknown: list[OffsetDeleteResponseTopic] = []
    there: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = services.cluster.topic(topic.name)
        count = 0 if known is None else len(known.partitions)
        found = [row for row in topic.partitions if 0 <= row.partition_index < count]
        missing = [
            OffsetDeleteResponsePartition(row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for row in topic.partitions
            if not 0 <= row.partition_index < count
        ]
        if missing or known is None:
            unknown.append(OffsetDeleteResponseTopic(topic.name, missing))
        if found:
            there.append(OffsetDeleteRequestTopic(topic.name, found))
    request.topics = there

    def step(shard: GroupShard) -> OffsetDeleteResponse:
        answer = delete_offsets(shard, request)
        answer.topics = merged(unknown + answer.topics, attrgetter("name"))
        return answer

    return services.groups.ask(request.group_id, step, _refused)


def _refused(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error.code)
