"""OffsetForLeaderEpoch (API key 23): where an epoch ended, so that a consumer notices a truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        0,
        [
            OffsetForLeaderTopicResult(
                topic.topic, [_end(services, topic.topic, row) for row in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _end(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = services.cluster.log(topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, asked.partition)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)
