"""AlterPartitionReassignments (API key 45): partitions to other brokers (KIP-455). On one node they stay in place.

Kafka: ``ReplicationControlManager.alterPartitionReassignments``.
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
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.metadata.image import MetadataImage, Partition
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse | Coroutine[Any, Any, AlterPartitionReassignmentsResponse]:
    if not request.topics:
        return AlterPartitionReassignmentsResponse(
            error_message=""
        )  # where nothing is asked, Kafka's has no null
    may_change = request.allow_replication_factor_change
    answer = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change, error_message=None
    )

    def rows() -> Iterator[None]:
        for topic in request.topics:
            row = ReassignableTopicResponse(topic.name)
            answer.responses.append(row)
            for asked in topic.partitions:
                told = ReassignablePartitionResponse(asked.partition_index, error_message=None)
                try:
                    _check(services.metadata.image, topic.name, asked, may_change=may_change)
                except KafkaError as error:
                    told.error_code, told.error_message = error.code, error.message
                row.partitions.append(told)
                yield

    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    return chunked(rows(), count, answer)


def _check(image: MetadataImage, name: str, asked: ReassignablePartition, *, may_change: bool) -> None:
    """Raises KafkaError, with Kafka's text, unless the partition's replicas are those asked for."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= asked.partition_index < len(topic.partitions):
        text = f"Unable to find partition {name}:{asked.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    state = topic.partitions[asked.partition_index]
    moves = bool(state.adding_replicas or state.removing_replicas)
    if asked.replicas is None:
        if not moves:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    else:
        check_replicas(image, asked.replicas)
        if not may_change and len(asked.replicas) != (count := _replica_count(state)):
            text = f"The replication factor is changed from {count} to {len(asked.replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if asked.replicas == state.replicas and not moves:
            return
    # Only a directory that was part of a cluster has such partitions.
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A single node does not move partitions.")


def _replica_count(state: Partition) -> int:
    """How many replicas a partition has, or will have once its move is over."""
    if not state.adding_replicas and not state.removing_replicas:
        return len(state.replicas)
    return len({*state.replicas, *state.adding_replicas}.difference(state.removing_replicas))
