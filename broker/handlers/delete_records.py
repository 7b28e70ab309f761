"""DeleteRecords (API key 21): raises the log start offset of partitions. The response waits until it is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.requests.authorization import DELETE, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending, wait_for_response
from oncelog.broker.seams.clock import real_time
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
    from oncelog.broker.requests.request import RequestContext

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
    made = chunked(rows(), count, response)
    if services.replication is None:
        return made
    return Pending(_after_followers(services.cluster, made, request))


async def _after_followers(
    cluster: Cluster,
    made: DeleteRecordsResponse | Pending[DeleteRecordsResponse],
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    """Return the response when the live followers have deleted the records, too (Kafka: ``DelayedDeleteRecords``)."""
    response = await wait_for_response(made)
    deadline = real_time.monotonic() + request.timeout_ms / 1000
    for asked, topic in zip(request.topics, response.topics, strict=True):
        for partition, row in zip(asked.partitions, topic.partitions, strict=True):
            if row.error_code:
                continue
            offset = row.low_watermark if partition.offset == TO_HIGH_WATERMARK else partition.offset
            row.low_watermark = UNKNOWN_LOW_WATERMARK
            try:
                leader = cluster.leader_partition(topic.name, row.partition_index)
                row.low_watermark = leader.low_watermark
                row.low_watermark = await leader.wait_low_watermark(offset, deadline - real_time.monotonic())
            except KafkaError as error:
                row.error_code = error.code
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    row.low_watermark = UNKNOWN_LOW_WATERMARK
    return response


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
