"""Changes of partitions, row by row: committed as one batch, and as the metadata is then."""

from __future__ import annotations

import errno

import pytest

from oncelog.broker.handlers.partition_changes import Change, Row, change_partitions
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.elect_leaders import PartitionResult
from oncelog.wire.stored.metadata import PartitionChangeRecord, RemoveTopicRecord
from tests.harness.metadata_node import StandInNode
from tests.sim.files import Fault


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in ("t", "u")]), 7)
    return node


def new_epoch(node: StandInNode, name: str) -> tuple[Row, Change]:
    """A row that begins a new leader epoch of the topic's only partition."""

    def change() -> PartitionChangeRecord:
        topic = node.metadata.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return PartitionChangeRecord(0, topic.topic_id, leader=1)

    return PartitionResult(0, error_message=None), change


def epochs(node: StandInNode) -> list[int]:
    return [topic.partitions[0].leader_epoch for topic in node.metadata.image.topics.values()]


def test_all_rows_are_one_batch(node: StandInNode) -> None:
    asked = [new_epoch(node, name) for name in ("t", "x", "u")]
    asked.append((PartitionResult(0, error_message=None), lambda: None))
    seen: list[list[int]] = []
    node.metadata.subscribe(lambda record, topic: seen.append(epochs(node)))
    for _ in change_partitions(node.metadata, asked):
        assert epochs(node) == [0, 0]
    assert seen == [[1, 1], [1, 1]]
    rows = [(row.error_code, row.error_message) for row, _ in asked]
    assert rows == [(0, None), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"), (0, None), (0, None)]


def test_what_changed_between_the_rows_counts(node: StandInNode) -> None:
    asked = [new_epoch(node, name) for name in ("t", "u")]
    steps = change_partitions(node.metadata, asked)
    next(steps)
    next(steps)
    node.metadata.commit([RemoveTopicRecord(node.metadata.image.topics["t"].topic_id)])
    assert list(steps) == []
    assert [row.error_code for row, _ in asked] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert epochs(node) == [1]


def test_a_disk_that_fails_refuses_all_rows_that_were_not_refused(node: StandInNode) -> None:
    asked = [new_epoch(node, name) for name in ("t", "x")]
    node.files.faults.append(Fault("write", errno.ENOSPC))
    assert len(list(change_partitions(node.metadata, asked))) == 2
    codes = [row.error_code for row, _ in asked]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert epochs(node) == [0, 0]
