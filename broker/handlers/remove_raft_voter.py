"""RemoveRaftVoter (API key 81): refuses to remove a voter from the quorum of the cluster's metadata.

This node is the last one, which Kafka keeps, too.
"""

from __future__ import annotations

from typing import NoReturn

from oncelog.broker.handlers.raft_voters import (
    check_voter,
    check_voters_may_change,
    own_voter,
    voter_text,
)
from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest


def handle(services: Services, request: RemoveRaftVoterRequest, context: RequestContext) -> NoReturn:
    voter_id, directory = request.voter_id, request.voter_directory_id
    check_voter(services, "Remove", request.cluster_id, voter_id, directory)
    check_voters_may_change(services, "removing")
    raise KafkaError(
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {voter_text(voter_id, directory)} from the set of voters [{own_voter(services)}]",
    )
