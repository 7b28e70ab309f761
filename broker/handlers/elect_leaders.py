"""ElectLeaders (API key 43): another leader for partitions. On one node there is none to choose.

Kafka: ``ReplicationControlManager.electLeaders``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from typing import Any

    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

PREFERRED, UNCLEAN = 0, 1


def handle(
    services: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | Coroutine[Any, Any, ElectLeadersResponse]:
    image = services.metadata.image
    of_all = request.topic_partitions is None
    asked: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        asked = [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    answer = ElectLeadersResponse()
    if request.election_type not in (PREFERRED, UNCLEAN) and (of_all or asked):
        answer.error_code = ErrorCode.INVALID_REQUEST
        if of_all:
            return answer

    def rows() -> Iterator[None]:
        for name, indexes in asked:
            row = ReplicaElectionResult(name)
            answer.replica_election_results.append(row)
            for index in indexes:
                code, text = _elect(image, name, index, request.election_type)
                # Of all partitions, those that are led as they should be are not named.
                if not of_all or code != ErrorCode.ELECTION_NOT_NEEDED:
                    row.partition_result.append(PartitionResult(index, code, text))
                yield

    return chunked(rows(), len(asked) + sum(len(indexes) for _, indexes in asked), answer)


def _elect(image: MetadataImage, name: str, index: int, election_type: int) -> tuple[ErrorCode, str]:
    """Why the partition gets no other leader: the error code, and Kafka's text for it."""
    if election_type not in (PREFERRED, UNCLEAN):
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    topic = image.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    state = topic.partitions[index]
    # A partition without a leader is one that this node may not lead: it became the leader of all others at its start.
    if election_type == PREFERRED:
        if state.leader != state.replicas[0]:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    elif state.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, (
            "Eligible topic partition leaders are not available."
        )
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
