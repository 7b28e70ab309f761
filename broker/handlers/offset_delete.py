"""OffsetDelete (API key 47): deletes a group's offsets of topics that no member subscribes to (KIP-496).

Source: ``KafkaApis.handleOffsetDeleteRequest``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.topic_results import merged
from oncelog.broker.requests.authorization import READ, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    return chunked_steps(_delete(services, request, context))


def _delete(
    services: Services, request: OffsetDeleteRequest, context: RequestContext
) -> Steps[OffsetDeleteResponse | Pending[OffsetDeleteResponse]]:
    """Look at a topic at each step, then delete the offsets."""
    from oncelog.coordinator.groups.offsets import delete_offsets

    may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)
    unknown: list[OffsetDeleteResponseTopic] = []
    existing_topics: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        yield
        is_denied = not may_read(topic.name)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_image = None if is_denied else services.cluster.topic(topic.name)
        count = 0 if topic_image is None else len(topic_image.partitions)
        existing = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        missing = [
            OffsetDeleteResponsePartition(partition.partition_index, code)
            for partition in topic.partitions
            if not 0 <= partition.partition_index < count
        ]
        if missing or topic_image is None:
            unknown.append(OffsetDeleteResponseTopic(topic.name, missing))
        if existing:
            existing_topics.append(OffsetDeleteRequestTopic(topic.name, existing))
    request.topics = existing_topics

    def step(shard: GroupShard) -> OffsetDeleteResponse:
        response = delete_offsets(shard, request)
        response.topics = merged(unknown + response.topics, attrgetter("name"))
        return response

    return services.groups.serve(request.group_id, step, _error_response)


def _error_response(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error.code)
