"""AddRaftVoter and RemoveRaftVoter where the voters are in the metadata log, as ``kafka-storage format --standalone``
writes them. Where they are in the configuration, ``compat_tests/metadata/test_diff_quorum.py`` compares with Kafka.
"""

from __future__ import annotations

import pytest

from oncelog.broker.metadata.log import MetadataLog
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from oncelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.harness.metadata_node import DIRECTORY_ID, StandInNode

CONTROLLER = Listener("CONTROLLER", "127.0.0.1", 1)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> StandInNode:
    monkeypatch.setattr(MetadataLog, "has_voters", True)
    return StandInNode()


def test_no_voter_is_added(node: StandInNode) -> None:
    for voter_id, code in ((1, ErrorCode.DUPLICATE_VOTER), (7, ErrorCode.REQUEST_TIMED_OUT)):
        request = AddRaftVoterRequest(None, 1000, voter_id, DIRECTORY_ID, [CONTROLLER])
        assert node.call(request, 1).error_code == code


def test_the_last_voter_stays(node: StandInNode) -> None:
    for voter_id in (1, 7):
        response = node.call(RemoveRaftVoterRequest(None, voter_id, DIRECTORY_ID), 0)
        assert response.error_code == ErrorCode.VOTER_NOT_FOUND
        assert response.error_message is not None
        assert f"Cannot remove voter ReplicaKey(id={voter_id}, " in response.error_message
