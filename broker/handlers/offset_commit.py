"""OffsetCommit (API key 8): commits a group's offsets.

Topics and partitions that do not exist are refused one by one; the group's error applies to all others. Version 10
names topics by id. Source: ``KafkaApis.handleOffsetCommitRequest``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import ROWS_AT_ONCE, chunked_then
from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.topic_results import merged
from oncelog.broker.requests.authorization import GROUP_RESOURCE, READ, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_commit import (
    OFFSET_COMMIT_TOPIC_ID_VERSION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    if not services.authorization.allows(context, READ, GROUP_RESOURCE, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(
            0, [_error_result(topic, topic.partitions, code) for topic in request.topics]
        )
    may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)
    by_id = context.api_version >= OFFSET_COMMIT_TOPIC_ID_VERSION
    topics = request.topics
    unknown: list[OffsetCommitResponseTopic] = []
    if len(topics) <= ROWS_AT_ONCE:
        existing = [
            found
            for topic in topics
            if (found := _existing_partitions(services.cluster, topic, unknown, may_read, by_id=by_id))
        ]
        return _commit(services.groups, request, context, existing, unknown)
    existing = []
    image_offset = services.metadata.image.offset

    def find_existing() -> Iterator[None]:
        for topic in topics:
            found = _existing_partitions(services.cluster, topic, unknown, may_read, by_id=by_id)
            if found is not None:
                existing.append(found)
            yield

    def commit() -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
        if services.metadata.image.offset != image_offset:  # a topic deleted meanwhile must get no offsets
            existing.clear()
            unknown.clear()
            for _ in find_existing():
                pass
        return _commit(services.groups, request, context, existing, unknown)

    return chunked_then(find_existing(), len(topics), commit)


def _commit(
    groups: GroupCoordinator,
    request: OffsetCommitRequest,
    context: RequestContext,
    existing: list[OffsetCommitRequestTopic],
    unknown: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    from oncelog.coordinator.groups.offsets import commit_offsets

    topic_of = attrgetter("topic_id" if context.api_version >= OFFSET_COMMIT_TOPIC_ID_VERSION else "name")
    if not existing:
        return OffsetCommitResponse(0, merged(unknown, topic_of))
    request.topics = existing

    def step(shard: GroupShard) -> OffsetCommitResponse:
        response = commit_offsets(shard, request, client_of(context))
        if unknown:
            response.topics = merged(unknown + response.topics, topic_of)
        return response

    def error_response(error: KafkaError) -> OffsetCommitResponse:
        refused = [_error_result(topic, topic.partitions, error.code) for topic in existing]
        return OffsetCommitResponse(0, merged(unknown + refused, topic_of))

    return groups.serve(request.group_id, step, error_response, empty_allowed=True)


def _existing_partitions(
    cluster: Cluster,
    topic: OffsetCommitRequestTopic,
    unknown: list[OffsetCommitResponseTopic],
    may_read: Callable[[str], bool],
    *,
    by_id: bool,
) -> OffsetCommitRequestTopic | None:
    """Return the topic with its name, its id and its existing partitions; None if there are none, or it is not to be
    read.

    Append the result for the others to ``unknown``.
    """
    topic_image = cluster.topic_by_id(topic.topic_id) if by_id else cluster.topic(topic.name)
    if topic_image is not None or not by_id:
        name = topic.name if topic_image is None else topic_image.name
        if not may_read(name):
            unknown.append(_error_result(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            return None
    if topic_image is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown.append(_error_result(topic, topic.partitions, code))
        return None
    topic.name, topic.topic_id = topic_image.name, topic_image.topic_id
    count = len(topic_image.partitions)
    existing = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    if len(existing) < len(topic.partitions):
        missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        unknown.append(_error_result(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return OffsetCommitRequestTopic(topic_image.name, topic_image.topic_id, existing) if existing else None


def _error_result(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    results = [OffsetCommitResponsePartition(partition.partition_index, code) for partition in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, results)
