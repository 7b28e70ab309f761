"""The common part of AddRaftVoter and RemoveRaftVoter: the reason why the quorum of this node stays as it is.

Source: ``KafkaRaftClient``, ``AddVoterHandler``, ``RemoveVoterHandler``; KIP-853.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.store import store_of
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.wire.schema import Uuid


def check_voter(
    services: Services, change: str, cluster_id: str | None, voter_id: int, directory: Uuid
) -> None:
    """Check who is to be changed; ``change``: Add or Remove. Raises KafkaError: INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST.
    """
    own = services.metadata.cluster_id
    if cluster_id is not None and cluster_id != own:
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if voter_id < 0 or directory == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change} voter request didn't include a valid voter")


def check_voters_may_change(services: Services, changing: str) -> None:
    """Raise KafkaError (UNSUPPORTED_VERSION) unless the voters are in the metadata log (``kraft.version`` 1)."""
    if not store_of(services.metadata).has_voters:
        text = f"Cluster doesn't support {changing} voter because the kraft.version feature is 0"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


def voter_text(voter_id: int, directory: Uuid) -> str:
    """Return a voter as Kafka writes it."""
    return f"ReplicaKey(id={voter_id}, directoryId={uuid_to_text(directory)})"


def own_voter(services: Services) -> str:
    """Return the only voter, as Kafka writes it."""
    return voter_text(services.config.current.node_id, services.metadata.directory_id)
