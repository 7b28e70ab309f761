"""AddRaftVoter (API key 80): refuses to add a voter to the quorum of the cluster's metadata, which is this node.

A Kafka whose voters are in its metadata log would ask the new voter for its versions; this node connects to nobody.
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
from oncelog.wire.messages.add_raft_voter import AddRaftVoterRequest


def handle(services: Services, request: AddRaftVoterRequest, context: RequestContext) -> NoReturn:
    voter_id, directory = request.voter_id, request.voter_directory_id
    check_voter(services, "Add", request.cluster_id, voter_id, directory)
    names = services.config.static.controller_listener_names
    listener = names[0] if names else ""
    if all(one.name != listener for one in request.listeners):
        given = ", ".join(f"{one.name}={one.host}:{one.port}" for one in request.listeners)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{given}}})) for the default "
            f"listener ListenerName({listener})",
        )
    check_voters_may_change(services, "adding")
    if voter_id == services.config.current.node_id:
        raise KafkaError(
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {voter_text(voter_id, directory)} is already part of the set of voters "
            f"[{own_voter(services)}].",
        )
    raise KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"New voter {voter_text(voter_id, directory)} is not ready to receive requests",
    )
