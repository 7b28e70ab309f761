"""OffsetForLeaderEpoch (API key 23): where an epoch ended, so that a consumer notices a truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()

    def rows() -> Iterator[None]:
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic.topic)
            response.topics.append(result)
            yield
            for asked in topic.partitions:
                result.partitions.append(_end(services, topic.topic, asked))
                yield

    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    return chunked(rows(), count, response)


def _end(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = services.cluster.log(topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, asked.partition)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)
