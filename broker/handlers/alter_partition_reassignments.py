"""AlterPartitionReassignments (API key 45): moves partitions to other brokers, or cancels that (KIP-455).

Version 1 may forbid another number of replicas (KIP-860). Source:
``ReplicationControlManager.alterPartitionReassignments``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.controller.reassignments import reassign
from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.handlers.partition_changes import Change, Row, change_partitions
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse | Pending[AlterPartitionReassignmentsResponse]:
    if not request.topics:
        # Kafka returns a new response here, whose message is empty and not null.
        return AlterPartitionReassignmentsResponse(error_message="")
    image, config = services.metadata.image, services.config.current
    may_change_count = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_count, error_message=None
    )
    asked: list[tuple[Row, Change]] = []
    for topic in request.topics:
        rows = ReassignableTopicResponse(topic.name)
        response.responses.append(rows)
        for wanted in topic.partitions:
            row = ReassignablePartitionResponse(wanted.partition_index, error_message=None)
            rows.partitions.append(row)
            asked.append(
                (row, partial(reassign, image, config, topic.name, wanted, may_change_count=may_change_count))
            )
    return chunked(change_partitions(services.metadata, asked), len(request.topics) + len(asked), response)
