"""CreatePartitions: the expected responses are those of a real Kafka 4.3.1."""

from __future__ import annotations

import errno

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.harness.metadata_node import StandInNode
from tests.sim.disk import Fault


def wanted(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    rows = None if assignments is None else [CreatePartitionsAssignment(brokers) for brokers in assignments]
    return CreatePartitionsTopic(name, count, rows)


def grow(
    node: StandInNode, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> list[tuple[str, int, str | None]]:
    rows: list[CreatePartitionsTopicResult] = node.call(
        CreatePartitionsRequest(list(topics), 1000, validate_only), version
    ).results
    return [(row.name, row.error_code, row.error_message) for row in rows]


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1), CreatableTopic("u", 1, 1)]), 7)
    node.records.clear()
    return node


def partitions(node: StandInNode, name: str = "t") -> int:
    return len(node.metadata.image.topics[name].partitions)


@pytest.mark.parametrize("version", range(4))
def test_more_partitions(node: StandInNode, version: int) -> None:
    assert grow(node, wanted("t", 5), wanted("u", 2, [[1]]), version=version) == [
        ("t", 0, None),
        ("u", 0, None),
    ]
    assert (partitions(node), partitions(node, "u"), len(node.records)) == (5, 2, 3)
    state = node.metadata.image.topics["t"].partitions[4]
    assert (state.leader, state.leader_epoch, state.replicas, state.isr) == (1, 0, [1], [1])


MANUAL = "The manual partition assignment"


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("nope", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (wanted("t", 3), ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (
            wanted("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); 2 would not be an increase.",
        ),
        (
            wanted("t", -1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); -1 would not be an increase.",
        ),
        (
            wanted("t", 4, []),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            wanted("t", 4, [[1], [1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            wanted("t", 4, [[9]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes broker 9, but no such broker is registered.",
        ),
        (
            wanted("t", 4, [[1, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes the broker 1 more than once.",
        ),
        (
            wanted("t", 4, [[]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes an empty replica list.",
        ),
        (
            wanted("t", 2_000_000_000),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of additional partitions per request.",
        ),
    ],
)
def test_refusals(
    node: StandInNode, topic: CreatePartitionsTopic, code: ErrorCode, message: str | None
) -> None:
    assert grow(node, topic) == [(topic.name, code, message)]
    assert node.records == []


def test_a_topic_named_twice_is_refused_and_the_others_are_not(node: StandInNode) -> None:
    responses = grow(node, wanted("t", 9), wanted("u", 2), wanted("t", 9))
    assert responses == [("t", ErrorCode.INVALID_REQUEST, "Duplicate topic name."), ("u", 0, None)]
    assert (partitions(node), partitions(node, "u")) == (3, 2)


def test_validate_only(node: StandInNode) -> None:
    assert grow(node, wanted("t", 4), wanted("u", 1), validate_only=True) == [
        ("t", 0, None),
        ("u", ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
    ]
    assert node.records == []


def test_an_empty_request(node: StandInNode) -> None:
    assert grow(node) == []


def test_a_full_disk(node: StandInNode) -> None:
    node.files.faults.append(Fault("write", errno.ENOSPC))
    [(_, code, _), (_, other, _)] = grow(node, wanted("t", 4), wanted("nope", 4))
    assert (code, other) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert partitions(node) == 3
