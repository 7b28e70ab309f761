"""DescribeTopicPartitions: pages, limits and cursors, as in a real Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.harness.metadata_node import StandInNode

ALL_TOPIC_OPERATIONS = 3576


@pytest.fixture
def node() -> StandInNode:
    return node_with({})


def node_with(keys: dict[str, str]) -> StandInNode:
    node = StandInNode(keys)
    topics = [
        CreatableTopic("b", 5, 1),
        CreatableTopic("a.2", 2, 1),
        CreatableTopic("__consumer_offsets", 1, 1),
    ]
    node.call(CreateTopicsRequest(topics), 7)
    return node


def describe(
    node: StandInNode, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """(name, error, partition indexes) of each row, and the next cursor."""
    start = None if cursor is None else Cursor(*cursor)
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, start)
    response: Any = node.call(request, 0)
    rows = [
        (row.name, row.error_code, [part.partition_index for part in row.partitions])
        for row in response.topics
    ]
    following = response.next_cursor
    return rows, None if following is None else (following.topic_name, following.partition_index)


def test_a_row(node: StandInNode) -> None:
    topic_id = node.metadata.image.topics["a.2"].topic_id
    node.metadata.commit([PartitionChangeRecord(1, topic_id, leader=1, last_known_elr=[1])])
    [row] = node.call(DescribeTopicPartitionsRequest([TopicRequest("a.2")]), 0).topics
    assert (row.error_code, row.topic_id, row.is_internal) == (0, topic_id, False)
    assert row.topic_authorized_operations == ALL_TOPIC_OPERATIONS
    first, second = row.partitions
    assert (first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (1, 0, [1], [1])
    assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([], [], [])
    assert (second.leader_epoch, second.last_known_elr) == (1, [1])


def test_rows_are_in_the_order_of_names_and_once_each(node: StandInNode) -> None:
    assert describe(node, "b", "nope", "b/d", "a.2", "b") == (
        [
            ("a.2", 0, [0, 1]),
            ("b", 0, [0, 1, 2, 3, 4]),
            ("b/d", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ],
        None,
    )


def test_all_topics_without_any_named(node: StandInNode) -> None:
    rows, following = describe(node)
    assert [name for name, _, _ in rows] == ["__consumer_offsets", "a.2", "b"]
    assert following is None
    assert [row.is_internal for row in node.call(DescribeTopicPartitionsRequest(), 0).topics] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("limit", "cursor", "rows", "following"),
    [
        (1, None, [("a.2", 0, [0])], ("a.2", 1)),
        (0, None, [("a.2", 0, [0])], ("a.2", 1)),
        (-5, None, [("a.2", 0, [0])], ("a.2", 1)),
        (2, None, [("a.2", 0, [0, 1])], ("b", 0)),
        (3, None, [("a.2", 0, [0, 1]), ("b", 0, [0])], ("b", 1)),
        (7, None, [("a.2", 0, [0, 1]), ("b", 0, [0, 1, 2, 3, 4])], None),
        (3, ("a.2", 1), [("a.2", 0, [1]), ("b", 0, [0, 1])], ("b", 2)),
        (3, ("b", 2), [("b", 0, [2, 3, 4])], None),
        (3, ("b", 9), [("b", 0, [])], None),
    ],
)
def test_pages(
    node: StandInNode,
    limit: int,
    cursor: tuple[str, int] | None,
    rows: list[tuple[str, int, list[int]]],
    following: tuple[str, int] | None,
) -> None:
    assert describe(node, "b", "a.2", limit=limit, cursor=cursor) == (rows, following)


def test_page_by_page_is_everything_once(node: StandInNode) -> None:
    for limit in range(1, 9):
        seen: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = ("", 0)
        while cursor is not None:
            rows, cursor = describe(node, limit=limit, cursor=cursor)
            assert sum(len(indexes) for _, _, indexes in rows) <= limit
            seen += [(name, index) for name, _, indexes in rows for index in indexes]
        assert seen == [
            ("__consumer_offsets", 0),
            *(("a.2", i) for i in range(2)),
            *(("b", i) for i in range(5)),
        ]


def test_the_broker_has_a_limit_too() -> None:
    node = node_with({"max.request.partition.size.limit": "4"})
    assert describe(node, "b")[1] == ("b", 4)


def test_a_cursor_may_name_a_deleted_topic(node: StandInNode) -> None:
    assert describe(node, cursor=("a.3", 7)) == ([("b", 0, [0, 1, 2, 3, 4])], None)
    rows, _ = describe(node, "a.3", "b", cursor=("a.3", 7))
    assert rows == [("a.3", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []), ("b", 0, [0, 1, 2, 3, 4])]


@pytest.mark.parametrize("cursor", [("zz", 0), ("b", -1)])
def test_invalid_cursors(node: StandInNode, cursor: tuple[str, int]) -> None:
    assert describe(node, "b", "a.2", cursor=cursor) == (
        [("b", ErrorCode.INVALID_REQUEST, []), ("a.2", ErrorCode.INVALID_REQUEST, [])],
        None,
    )
