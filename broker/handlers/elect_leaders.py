"""ElectLeaders (API key 43): elects leaders of partitions. With one node there is no other candidate.

Source: ``ReplicationControlManager.electLeaders``.
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
    from collections.abc import Iterator, Sequence

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.requests.request import Pending, RequestContext

PREFERRED, UNCLEAN = 0, 1


def handle(
    services: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | Pending[ElectLeadersResponse]:
    image = services.metadata.image
    is_wildcard = request.topic_partitions is None
    wanted: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        wanted = [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    response = ElectLeadersResponse()
    if request.election_type not in (PREFERRED, UNCLEAN) and (is_wildcard or wanted):
        response.error_code = ErrorCode.INVALID_REQUEST
        if is_wildcard:
            return response

    def rows() -> Iterator[None]:
        for name, indexes in wanted:
            topic_result = ReplicaElectionResult(name)
            response.replica_election_results.append(topic_result)
            yield
            for index in indexes:
                code, text = _elect(image, name, index, request.election_type)
                # The response for all partitions leaves out those that need no election.
                if not is_wildcard or code != ErrorCode.ELECTION_NOT_NEEDED:
                    topic_result.partition_result.append(PartitionResult(index, code, text))
                yield

    return chunked(rows(), len(wanted) + sum(len(indexes) for _, indexes in wanted), response)


def _elect(image: MetadataImage, name: str, index: int, election_type: int) -> tuple[ErrorCode, str]:
    """Return why no leader is elected: the error code, and Kafka's text for it."""
    if election_type not in (PREFERRED, UNCLEAN):
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    topic = image.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    partition = topic.partitions[index]
    # When this node started it became the leader of every partition that it may lead.
    if election_type == PREFERRED:
        if partition.leader != partition.replicas[0]:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    elif partition.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, (
            "Eligible topic partition leaders are not available."
        )
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
