"""OffsetForLeaderEpoch (API key 23): returns the end offset of a leader epoch, by which consumers notice truncation.

KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.requests.authorization import CLUSTER_ACTION, DESCRIBE, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Pending[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    authorization = services.authorization
    is_broker = authorization.allows(context, CLUSTER_ACTION, *THE_CLUSTER, quiet=True)
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)

    def rows() -> Iterator[None]:
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic.topic)
            response.topics.append(result)
            yield
            is_allowed = is_broker or may_describe(topic.topic)
            for partition in topic.partitions:
                result.partitions.append(
                    _end_offset(services.cluster, topic.topic, partition)
                    if is_allowed
                    else EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition.partition)
                )
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
