"""ElectLeaders (API key 43): elects the preferred leaders of partitions, or any leaders where there is none.

Version 0 knows preferred leaders only. Source: ``ReplicationControlManager.electLeaders``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.controller.leadership import PREFERRED, UNCLEAN, elect
from oncelog.broker.handlers.chunked import chunked_then
from oncelog.broker.handlers.partition_changes import Change, Row, change_partitions
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | Pending[ElectLeadersResponse]:
    image, config = services.metadata.image, services.config.current
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

    asked: list[tuple[Row, Change]] = []
    for name, indexes in wanted:
        rows = [PartitionResult(index, error_message=None) for index in indexes]
        response.replica_election_results.append(ReplicaElectionResult(name, rows))
        asked += [
            (row, partial(elect, image, config, name, row.partition_id, request.election_type))
            for row in rows
        ]

    def respond() -> ElectLeadersResponse:
        if is_wildcard:  # it leaves out the partitions that need no election
            for result in response.replica_election_results:
                result.partition_result = [
                    row for row in result.partition_result if row.error_code != ErrorCode.ELECTION_NOT_NEEDED
                ]
        return response

    return chunked_then(change_partitions(services.metadata, asked), len(wanted) + len(asked), respond)
