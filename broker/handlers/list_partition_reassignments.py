"""ListPartitionReassignments (API key 46): lists the partitions that are moving between brokers (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.controller.reassignments import ongoing
from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
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
            topics.append(ongoing(topic, range(len(topic.partitions))))
            yield
    else:
        for wanted in request.topics:
            yield
            found = image.topics.get(wanted.name)
            if found is not None:
                topics.append(ongoing(found, wanted.partition_indexes))
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in topics if topic.partitions]
    )
