"""AlterPartitionReassignments: no partition moves, even one that a former cluster left on other nodes or moving."""

from __future__ import annotations

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


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1)]), 7)
    topic_id = node.metadata.image.topics["t"].topic_id
    changes = [
        PartitionChangeRecord(MOVING, topic_id, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]),
        PartitionChangeRecord(WIDE, topic_id, replicas=[2, 1]),
    ]
    node.metadata.commit(changes)
    return node


def move(node: StandInNode, index: int, replicas: list[int] | None, *, may_change: bool = True) -> int:
    """The error code of one partition's row; whatever it is, nothing has changed."""
    before = len(node.records)
    topic = ReassignableTopic("t", [ReassignablePartition(index, replicas)])
    response = node.call(AlterPartitionReassignmentsRequest(1000, may_change, [topic]), 1)
    assert (response.error_code, response.allow_replication_factor_change) == (0, may_change)
    assert len(node.records) == before
    [row] = response.responses[0].partitions
    assert (row.error_message is None) == (row.error_code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    return int(row.error_code)


def test_moves_to_the_present_replicas(node: StandInNode) -> None:
    assert move(node, HERE, [1]) == move(node, HERE, [1], may_change=False) == 0


def test_nothing_is_moved(node: StandInNode) -> None:
    for index in (MOVING, WIDE):
        assert move(node, index, [1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(node, MOVING, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for index in (HERE, WIDE):
        assert move(node, index, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_to_a_broker_that_is_registered_but_fenced(node: StandInNode) -> None:
    """Only a new partition needs a broker that serves: the refusal is that of any other move."""
    node.metadata.commit([RegisterBrokerRecord(2, broker_epoch=9, fenced=True)])
    for replicas in ([2], [1, 2]):
        topic = ReassignableTopic("t", [ReassignablePartition(HERE, replicas)])
        response = node.call(AlterPartitionReassignmentsRequest(1000, True, [topic]), 1)
        [row] = response.responses[0].partitions
        text = "A single node does not move partitions."
        assert (row.error_code, row.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def test_as_many_replicas_as_before(node: StandInNode) -> None:
    assert move(node, WIDE, [1], may_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(node, MOVING, [1], may_change=False) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
