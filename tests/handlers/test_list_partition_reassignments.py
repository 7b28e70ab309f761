"""ListPartitionReassignments: nothing moves on one node; unfinished reassignments of a former cluster are listed."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.harness.metadata_node import StandInNode


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1), CreatableTopic("u", 1, 1)]), 7)
    return node


def asked(name: str, *indexes: int) -> ListPartitionReassignmentsTopics:
    return ListPartitionReassignmentsTopics(name, list(indexes))


QUESTIONS: list[list[ListPartitionReassignmentsTopics] | None] = [
    None,
    [],
    [asked("t", 0, 77, -1), asked("nope", 0), asked("u")],
]


@pytest.mark.parametrize("topics", QUESTIONS)
def test_nothing_moves(node: StandInNode, topics: list[ListPartitionReassignmentsTopics] | None) -> None:
    response: Any = node.call(ListPartitionReassignmentsRequest(1000, topics), 0)
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])


def test_unfinished_reassignments_are_listed(node: StandInNode) -> None:
    topic_id = node.metadata.image.topics["t"].topic_id
    node.metadata.commit(
        [PartitionChangeRecord(1, topic_id, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1])]
    )
    for topics in (None, [asked("t", 0, 1, 77), asked("u", 0)]):
        [topic] = node.call(ListPartitionReassignmentsRequest(1000, topics), 0).topics
        [row] = topic.partitions
        assert (topic.name, row.partition_index) == ("t", 1)
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([1, 2], [2], [1])
    assert node.call(ListPartitionReassignmentsRequest(1000, [asked("t", 0)]), 0).topics == []
