"""OffsetCommit (API key 8): stores a group's offsets.

Topics and partitions that are not there are refused one by one; what the group has to say is said of all the others.
Version 10 names topics by id. Source: ``KafkaApis.handleOffsetCommitRequest``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.coordinators.groups import client_of
from oncelog.broker.handlers.chunked import ROWS_AT_ONCE, chunked_then
from oncelog.broker.handlers.topic_rows import merged
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
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard


def handle(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    by_id = context.api_version >= OFFSET_COMMIT_TOPIC_ID_VERSION
    topics = request.topics
    unknown: list[OffsetCommitResponseTopic] = []
    if len(topics) <= ROWS_AT_ONCE:
        there = [found for topic in topics if (found := _existing(services, topic, unknown, by_id=by_id))]
        return _commit(services, request, context, there, unknown)
    there = []
    began = services.metadata.image.offset

    def sort_out() -> Iterator[None]:
        for topic in topics:
            found = _existing(services, topic, unknown, by_id=by_id)
            if found is not None:
                there.append(found)
            yield

    def commit() -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
        if services.metadata.image.offset != began:  # one that is gone must leave no offsets
            there.clear()
            unknown.clear()
            for _ in sort_out():
                pass
        return _commit(services, request, context, there, unknown)

    return chunked_then(sort_out(), len(topics), commit)


def _commit(
    services: Services,
    request: OffsetCommitRequest,
    context: RequestContext,
    there: list[OffsetCommitRequestTopic],
    unknown: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    from oncelog.coordinator.groups.offsets import commit_offsets

    topic_of = attrgetter("topic_id" if context.api_version >= OFFSET_COMMIT_TOPIC_ID_VERSION else "name")
    if not there:
        return OffsetCommitResponse(0, merged(unknown, topic_of))
    request.topics = there

    def step(shard: GroupShard) -> OffsetCommitResponse:
        answer = commit_offsets(shard, request, client_of(context))
        if unknown:
            answer.topics = merged(unknown + answer.topics, topic_of)
        return answer

    def refused(error: KafkaError) -> OffsetCommitResponse:
        rows = [_refused_topic(topic, topic.partitions, error.code) for topic in there]
        return OffsetCommitResponse(0, merged(unknown + rows, topic_of))

    return services.groups.ask(request.group_id, step, refused, empty_allowed=True)


def _existing(
    services: Services,
    topic: OffsetCommitRequestTopic,
    unknown: list[OffsetCommitResponseTopic],
    *,
    by_id: bool,
) -> OffsetCommitRequestTopic | None:
    """The topic, with name, id and those of its partitions that are there; ``unknown`` gets rows for the others."""
    known = services.cluster.topic_by_id(topic.topic_id) if by_id else services.cluster.topic(topic.name)
    if known is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown.append(_refused_topic(topic, topic.partitions, code))
        return None
    topic.name, topic.topic_id = known.name, known.topic_id
    count = len(known.partitions)
    there = [row for row in topic.partitions if 0 <= row.partition_index < count]
    if len(there) < len(topic.partitions):
        missing = [row for row in topic.partitions if not 0 <= row.partition_index < count]
        unknown.append(_refused_topic(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return OffsetCommitRequestTopic(known.name, known.topic_id, there) if there else None


def _refused_topic(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    rows = [OffsetCommitResponsePartition(row.partition_index, code) for row in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, rows)
