"""ListPartitionReassignments (API key 46): which partitions are being moved (KIP-455). On one node none ever is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    image = services.metadata.image
    found = []
    if request.topics is None:
        found = [_moving(topic, range(len(topic.partitions))) for topic in image.topics.values()]
    else:
        for asked in request.topics:
            topic = image.topics.get(asked.name)
            if topic is not None:
                known = [index for index in asked.partition_indexes if 0 <= index < len(topic.partitions)]
                found.append(_moving(topic, known))
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[row for row in found if row.partitions]
    )


def _moving(topic: Topic, indexes: range | list[int]) -> OngoingTopicReassignment:
    rows = []
    for index in indexes:
        state = topic.partitions[index]
        if state.adding_replicas or state.removing_replicas:
            rows.append(
                OngoingPartitionReassignment(
                    index, list(state.replicas), list(state.adding_replicas), list(state.removing_replicas)
                )
            )
    return OngoingTopicReassignment(topic.name, rows)
