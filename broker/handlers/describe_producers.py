"""DescribeProducers (API key 61): lists the producers that a replica knows, and their open transactions.

KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.requests.authorization import READ, TOPIC_RESOURCE, denied
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Pending[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)

    def rows() -> Steps[DescribeProducersResponse]:
        for topic in request.topics:
            result = TopicResponse(topic.name)
            response.topics.append(result)
            yield
            for index in topic.partition_indexes:
                row = yield from _partition(services.cluster, topic.name, index, may_read)
                result.partitions.append(row)
        return response

    return chunked_steps(rows())


def _partition(
    cluster: Cluster, topic: str, partition: int, may_read: Callable[[str], bool]
) -> Steps[PartitionResponse]:
    from oncelog.broker.metadata.topics import check_name

    yield
    try:
        check_name(topic)
        if not may_read(topic):
            raise denied(READ, TOPIC_RESOURCE, topic)
        if cluster.topic(topic) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionResponse(partition, error, "This server does not host this topic-partition.")
    except KafkaError as error:
        return PartitionResponse(partition, error.code, error.message)
    try:
        producers = list(cluster.readable_partition(topic, partition).log.producers.producers.values())
    except KafkaError as error:
        return PartitionResponse(partition, error.code)
    active = []
    for producer in producers:
        state = ProducerState(
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.txn_first_offset,
        )
        active.append(state)
        yield
    return PartitionResponse(partition, active_producers=active)
