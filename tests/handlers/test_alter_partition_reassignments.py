"""AlterPartitionReassignments on one node: of what a former cluster left, what needs no other node ends at once."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.stored.metadata import PartitionChangeRecord, RegisterBrokerRecord
from tests.harness.metadata_node import StandInNode

HERE, MOVING, WIDE = 0, 1, 2
MOVED = ErrorCode.NONE


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1)]), 7)
    topic_id = node.metadata.image.topics["t"].topic_id
    changes = [
        PartitionChangeRecord(MOVING, topic_id, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]),
        PartitionChangeRecord(WIDE, topic_id, replicas=[2, 1]),
    ]
    node.metadata.commit(changes)
    return node


def move(node: StandInNode, index: int, replicas: list[int] | None, *, may_change: bool = True) -> Any:
    """The error code of one partition's row, and the replicas after it: all, those to add, those to remove."""
    topic = ReassignableTopic("t", [ReassignablePartition(index, replicas)])
    response = node.call(AlterPartitionReassignmentsRequest(1000, may_change, [topic]), 1)
    assert (response.error_code, response.allow_replication_factor_change) == (0, may_change)
    [row] = response.responses[0].partitions
    assert (row.error_message is None) == (row.error_code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    state = node.metadata.image.topics["t"].partitions[index]
    return row.error_code, state.replicas, state.adding_replicas, state.removing_replicas


def test_moves_to_the_present_replicas_change_nothing(node: StandInNode) -> None:
    before = len(node.records)
    assert move(node, HERE, [1]) == move(node, HERE, [1], may_change=False) == (MOVED, [1], [], [])
    assert len(node.records) == before


def test_a_replica_of_another_node_goes_at_once(node: StandInNode) -> None:
    assert move(node, WIDE, [1]) == (MOVED, [1], [], [])


def test_a_move_that_another_node_never_ends_can_be_cancelled(node: StandInNode) -> None:
    assert move(node, MOVING, None) == (MOVED, [1], [], [])
    for index, replicas in ((HERE, [1]), (WIDE, [2, 1]), (MOVING, [1])):
        assert move(node, index, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, replicas, [], [])


def test_a_move_to_a_broker_that_is_registered_but_does_not_serve_has_to_wait(node: StandInNode) -> None:
    assert move(node, HERE, [2]) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, [1], [], [])
    node.metadata.commit([RegisterBrokerRecord(2, broker_epoch=9, fenced=True)])
    assert move(node, HERE, [2]) == (MOVED, [2, 1], [2], [1])
    assert node.metadata.image.topics["t"].partitions[HERE].leader == 1


def test_as_many_replicas_as_before(node: StandInNode) -> None:
    refused: tuple[ErrorCode, list[int], list[int], list[int]]
    refused = (ErrorCode.INVALID_REPLICATION_FACTOR, [2, 1], [], [])
    assert move(node, WIDE, [1], may_change=False) == refused
    # What counts is how many there will be once the move that is under way is over.
    assert move(node, MOVING, [1], may_change=False)[0] == MOVED


def test_a_topic_that_is_gone_before_the_last_row_is_handled(node: StandInNode) -> None:
    """Other requests have their turn between the rows of a large request."""
    rows = [ReassignablePartition(WIDE, [1])] * 2 + [ReassignablePartition(9, [1])]
    response = node.call(AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic("t", rows)]), 1)
    codes = [row.error_code for row in response.responses[0].partitions]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
