"""ElectLeaders: no election is needed, and partitions of a former cluster have no other candidate."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.harness.metadata_node import StandInNode

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1), CreatableTopic("u", 1, 1)]), 7)
    return node


def elect(node: StandInNode, election_type: int, *asked: tuple[str, list[int]], version: int = 2) -> Any:
    rows = [TopicPartitions(name, indexes) for name, indexes in asked] or None
    response = node.call(ElectLeadersRequest(election_type, rows, 1000), version)
    return response.error_code, {
        topic.topic: [(row.partition_id, row.error_code) for row in topic.partition_result]
        for topic in response.replica_election_results
    }


def test_where_replicas_are_on_another_node_too(node: StandInNode) -> None:
    topic_id = node.metadata.image.topics["t"].topic_id
    changes = [
        PartitionChangeRecord(0, topic_id, replicas=[1, 2], isr=[1]),
        PartitionChangeRecord(1, topic_id, replicas=[2, 1], isr=[1]),
        PartitionChangeRecord(2, topic_id, replicas=[2], isr=[2], leader=-1),
    ]
    node.metadata.commit(changes)
    missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    found = [(0, not_needed), (1, missing), (2, missing)]
    assert elect(node, PREFERRED, ("t", [0, 1, 2])) == (0, {"t": found})
    assert elect(node, PREFERRED) == (0, {"t": found[1:], "u": []})
    nobody = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    found = [(0, not_needed), (1, not_needed), (2, nobody)]
    assert elect(node, UNCLEAN, ("t", [0, 1, 2])) == (0, {"t": found})
    assert elect(node, UNCLEAN) == (0, {"t": found[2:], "u": []})


def test_version_0_elects_preferred_leaders(node: StandInNode) -> None:
    topic_id = node.metadata.image.topics["t"].topic_id
    node.metadata.commit([PartitionChangeRecord(1, topic_id, replicas=[2, 1], isr=[1])])
    assert elect(node, 0, version=0) == (0, {"t": [(1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)], "u": []})
