"""ListPartitionReassignments (API key 46): lists the partitions that are moving between brokers (KIP-455).

A single node moves none; the data directory of a former cluster may hold some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse | Pending[ListPartitionReassignmentsResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Steps[ListPartitionReassignmentsResponse]:
    """Make the response, a row at each step."""
    image = services.metadata.image
    topics = []
    if request.topics is None:
        for topic in image.topics.values():
            topics.append(_moving(topic, range(len(topic.partitions))))
            yield
    else:
        for wanted in request.topics:
            yield
            found = image.topics.get(wanted.name)
            if found is not None:
                indexes = [index for index in wanted.partition_indexes if 0 <= index < len(found.partitions)]
                topics.append(_moving(found, indexes))
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in topics if topic.partitions]
    )


def _moving(topic: Topic, indexes: range | list[int]) -> OngoingTopicReassignment:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        if partition.adding_replicas or partition.removing_replicas:
            partitions.append(
                OngoingPartitionReassignment(
                    index,
                    list(partition.replicas),
                    list(partition.adding_replicas),
                    list(partition.removing_replicas),
                )
            )
    return OngoingTopicReassignment(topic.name, partitions)
