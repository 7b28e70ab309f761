"""OffsetForLeaderEpoch (API key 23): returns the end offset of a leader epoch, by which consumers notice truncation.

KIP-320.
"""

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
    from collections.abc import Iterator

    from oncelog.broker.cluster import Cluster
    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Pending[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()

    def rows() -> Iterator[None]:
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic.topic)
            response.topics.append(result)
            yield
            for partition in topic.partitions:
                result.partitions.append(_end_offset(services.cluster, topic.topic, partition))
                yield

    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    return chunked(rows(), count, response)


def _end_offset(cluster: Cluster, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = cluster.log(topic, partition.partition, partition.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, partition.partition)
    epoch, end_offset = log.end_offset_for_epoch(partition.leader_epoch)
    return EpochEndOffset(0, partition.partition, epoch, end_offset)
