"""DeleteRecords (API key 21): raises the log start offset of partitions. The response waits until it is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.requests.authorization import DELETE, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext

UNKNOWN_LOW_WATERMARK = -1
TO_HIGH_WATERMARK = -1


def handle(
    services: Services, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    may_delete = services.authorization.predicate(context, DELETE, TOPIC_RESOURCE)

    def rows() -> Iterator[None]:
        for topic in request.topics:
            result = DeleteRecordsTopicResult(topic.name)
            response.topics.append(result)
            yield
            is_allowed = may_delete(topic.name)
            for partition in topic.partitions:
                result.partitions.append(
                    _delete_before(services.cluster, topic.name, partition)
                    if is_allowed
                    else DeleteRecordsPartitionResult(
                        partition.partition_index,
                        UNKNOWN_LOW_WATERMARK,
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                )
                yield

    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    return chunked(rows(), count, response)


def _delete_before(
    cluster: Cluster, topic: str, partition: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = partition.partition_index
    try:
        log = cluster.log(topic, index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if log.config.compact and not log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        offset = log.high_watermark if partition.offset == TO_HIGH_WATERMARK else partition.offset
        if offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return DeleteRecordsPartitionResult(index, log.delete_records(offset), 0)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(index, UNKNOWN_LOW_WATERMARK, error.code)
