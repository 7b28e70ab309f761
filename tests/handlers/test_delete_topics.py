"""DeleteTopics: the expected responses are those of a real Kafka 4.3.1."""

from __future__ import annotations

import errno

import pytest

from oncelog.broker.metadata.image import TOPIC
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.stored.metadata import RemoveTopicRecord
from tests.harness.metadata_node import StandInNode
from tests.sim.disk import Fault

ZERO = bytes(16)
UNKNOWN = "This server does not host this topic-partition."


def node_with(*names: str, **keys: str) -> StandInNode:
    node = StandInNode({name.replace("_", "."): text for name, text in keys.items()})
    configs = [CreatableTopicConfig("retention.ms", "1")]
    node.call(CreateTopicsRequest([CreatableTopic(name, 2, 1, [], configs) for name in names]), 7)
    node.records.clear()
    return node


def delete(node: StandInNode, *asked: str | bytes | tuple[str, bytes]) -> list[DeletableTopicResult]:
    rows = []
    for one in asked:
        name, topic_id = (
            one if isinstance(one, tuple) else (None, one) if isinstance(one, bytes) else (one, ZERO)
        )
        rows.append(DeleteTopicState(name, topic_id))
    responses: list[DeletableTopicResult] = node.call(DeleteTopicsRequest(rows, [], 1000), 6).responses
    return responses


@pytest.mark.parametrize("version", range(1, 7))
def test_by_name(version: int) -> None:
    node = node_with("a", "b")
    topic_id = node.metadata.image.topics["a"].topic_id
    names = ["a", "nope"]
    request = DeleteTopicsRequest([], names, 1000)
    if version >= 6:
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], [], 1000)
    responses = node.call(request, version).responses
    rows = {row.name: row for row in responses}
    assert (rows["a"].error_code, rows["a"].error_message) == (0, None)
    assert rows["a"].topic_id == (topic_id if version >= 6 else ZERO)
    assert rows["nope"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows["nope"].error_message == (UNKNOWN if version >= 5 else None)
    assert list(node.metadata.image.topics) == ["b"]
    assert (TOPIC, "a") not in node.metadata.image.configs
    assert node.records == [RemoveTopicRecord(topic_id)]


def test_by_id() -> None:
    node = node_with("a", "b")
    topic_id = node.metadata.image.topics["a"].topic_id
    assert delete(node, topic_id) == [DeletableTopicResult("a", topic_id, 0, None)]
    assert delete(node, topic_id) == [
        DeletableTopicResult(
            None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        )
    ]
    assert list(node.metadata.image.topics) == ["b"]


@pytest.mark.parametrize(
    ("asked", "responses"),
    [
        ((ZERO,), [(None, ZERO, "Neither topic name nor id were specified.")]),
        ((("a", b"\1" * 16),), [("a", b"\1" * 16, "You may not specify both topic name and topic id.")]),
        (("a", "a", "a"), [("a", ZERO, "Duplicate topic name.")]),
        ((b"\2" * 16, b"\2" * 16), [(None, b"\2" * 16, "Duplicate topic id.")]),
    ],
)
def test_invalid_requests(
    asked: tuple[str | bytes | tuple[str, bytes], ...], responses: list[tuple[str | None, bytes, str]]
) -> None:
    node = node_with("a")
    rows = delete(node, *asked)
    assert [(row.name, row.topic_id, row.error_message) for row in rows] == responses
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_REQUEST}
    assert list(node.metadata.image.topics) == ["a"]
    assert node.records == []


def test_the_same_topic_by_name_and_by_id() -> None:
    node = node_with("a", "b")
    topic_id = node.metadata.image.topics["a"].topic_id
    [b, a] = sorted(delete(node, "a", topic_id, "b"), key=lambda row: row.error_code)
    assert (b.name, b.error_code) == ("b", 0)
    assert (a.name, a.topic_id, a.error_code) == ("a", topic_id, ErrorCode.INVALID_REQUEST)
    assert a.error_message == "The provided topic name maps to an ID that was already supplied."
    assert list(node.metadata.image.topics) == ["a"]


def test_several_topics_are_one_batch() -> None:
    node = node_with("a", "b", "c")
    offset = node.metadata.image.offset
    assert sorted(row.name or "" for row in delete(node, "a", "c")) == ["a", "c"]
    assert (node.metadata.image.offset, len(node.records)) == (offset + 2, 2)


def test_a_full_disk_deletes_nothing() -> None:
    node = node_with("a")
    node.files.faults.append(Fault("write", errno.ENOSPC))
    [row] = delete(node, "a")
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(node.metadata.image.topics) == ["a"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_deletion_may_be_switched_off(version: int, code: ErrorCode) -> None:
    node = node_with("a", delete_topic_enable="false")
    request = DeleteTopicsRequest([], ["a"], 1000)
    if version >= 6:
        request = DeleteTopicsRequest([DeleteTopicState("a")], [], 1000)
    [row] = node.call(request, version).responses
    assert (row.name, row.error_code) == ("a", code)
    assert list(node.metadata.image.topics) == ["a"]


def test_a_new_topic_with_the_name_has_another_id() -> None:
    node = node_with("a")
    old = node.metadata.image.topics["a"].topic_id
    delete(node, "a")
    node.call(CreateTopicsRequest([CreatableTopic("a", 1, 1)]), 7)
    topic = node.metadata.image.topics["a"]
    assert topic.topic_id != old
    assert (len(topic.partitions), (TOPIC, "a") in node.metadata.image.configs) == (1, False)
