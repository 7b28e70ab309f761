"""AlterPartitionReassignments (API key 45): moves partitions to other brokers (KIP-455); a single node moves none.

Source: ``ReplicationControlManager.alterPartitionReassignments``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata.placement import check_replicas
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import MetadataImage, Partition
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse | Pending[AlterPartitionReassignmentsResponse]:
    if not request.topics:
        # Kafka returns a new response here, whose message is empty and not null.
        return AlterPartitionReassignmentsResponse(error_message="")
    may_change_count = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_count, error_message=None
    )

    def rows() -> Iterator[None]:
        for topic in request.topics:
            topic_result = ReassignableTopicResponse(topic.name)
            response.responses.append(topic_result)
            yield
            for wanted in topic.partitions:
                result = ReassignablePartitionResponse(wanted.partition_index, error_message=None)
                try:
                    _check(services.metadata.image, topic.name, wanted, may_change_count=may_change_count)
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
                topic_result.partitions.append(result)
                yield

    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    return chunked(rows(), count, response)


def _check(image: MetadataImage, name: str, wanted: ReassignablePartition, *, may_change_count: bool) -> None:
    """Raises KafkaError, with Kafka's text, unless the partition has the wanted replicas already."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < len(topic.partitions):
        text = f"Unable to find partition {name}:{wanted.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    partition = topic.partitions[wanted.partition_index]
    is_moving = bool(partition.adding_replicas or partition.removing_replicas)
    if wanted.replicas is None:
        if not is_moving:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    else:
        check_replicas(image, wanted.replicas)
        if not may_change_count and len(wanted.replicas) != (count := _replica_count(partition)):
            text = f"The replication factor is changed from {count} to {len(wanted.replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if wanted.replicas == partition.replicas and not is_moving:
            return
    # Other replicas, or a move to cancel: only the data directory of a former cluster has such partitions.
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A single node does not move partitions.")


def _replica_count(partition: Partition) -> int:
    """Return how many replicas the partition has, or will have once its move is over."""
    if not partition.adding_replicas and not partition.removing_replicas:
        return len(partition.replicas)
    return len({*partition.replicas, *partition.adding_replicas}.difference(partition.removing_replicas))
