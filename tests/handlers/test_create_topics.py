"""CreateTopics: the expected rows are those of a real Kafka 4.3.1."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from oncelog.broker.metadata.image import TOPIC
from oncelog.broker.metadata.internal_topics import AutoTopicCreationManager, CreatesAtOnce
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from oncelog.wire.steps import finish
from tests.harness.metadata_node import DIRECTORY_ID, StandInNode
from tests.sim.disk import Fault

ZERO = bytes(16)
BAD_CHARS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def wanted(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assignments: Iterable[tuple[int, list[int]]] = (),
    configs: Iterable[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments],
        [CreatableTopicConfig(key, value) for key, value in configs],
    )


def create(
    node: StandInNode, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), 1000, validate_only)
    rows: list[CreatableTopicResult] = node.call(request, version).topics
    return rows


def refusal(topic: CreatableTopic, **keys: str) -> tuple[int, str | None]:
    """Return the error of a refused topic, and check that nothing was written."""
    node = StandInNode({name.replace("_", "."): text for name, text in keys.items()})
    create(node, wanted("taken.name"))
    node.records.clear()
    [row] = create(node, topic)
    assert row.name == topic.name
    assert row.error_code != 0
    assert (row.topic_id, row.num_partitions, row.replication_factor, row.configs) == (ZERO, -1, -1, [])
    assert node.records == []
    return row.error_code, row.error_message


def test_a_topic_is_one_batch_in_kafkas_order() -> None:
    node = StandInNode({"num.partitions": "3"})
    [row] = create(node, wanted("t", configs=[("retention.ms", "5"), ("cleanup.policy", "compact, delete")]))
    assert (row.error_code, row.error_message, row.num_partitions, row.replication_factor) == (0, None, 3, 1)
    topic = node.metadata.image.topics["t"]
    assert topic.topic_id == row.topic_id != ZERO
    assert [type(record).__name__ for record in node.records] == [
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "PartitionRecord",
        "PartitionRecord",
        "PartitionRecord",
    ]
    for state in topic.partitions:
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 0, 0)
        assert (state.replicas, state.isr, state.directories) == ([1], [1], [DIRECTORY_ID])
    assert node.metadata.image.configs[(TOPIC, "t")] == {
        "retention.ms": "5",
        "cleanup.policy": "compact, delete",
    }


def test_the_response_has_the_configuration() -> None:
    node = StandInNode({"log.retention.hours": "100", "log.flush.scheduler.interval.ms": "777777"})
    [row] = create(node, wanted("t", configs=[("cleanup.policy", "compact, delete")]))
    configs = row.configs or []
    assert [config.name for config in configs] == sorted(config.name for config in configs)
    told = {config.name: (config.value, config.config_source) for config in configs}
    assert len(told) == 37
    assert told["cleanup.policy"] == ("compact, delete", 1)
    assert told["min.insync.replicas"] == ("1", 3)
    assert told["retention.ms"] == ("360000000", 4)
    assert told["flush.ms"] == ("777777", 4)
    assert told["segment.bytes"] == ("1073741824", 5)
    assert not any(config.read_only or config.is_sensitive for config in configs)


@pytest.mark.parametrize("version", range(2, 8))
def test_fields_that_a_version_does_not_have(version: int) -> None:
    node = StandInNode()
    [row] = create(node, wanted("t", 2), version=version)
    assert row.error_code == 0
    assert (row.topic_id != ZERO) == (version >= 7)
    assert row.num_partitions == (2 if version >= 5 else -1)
    assert bool(row.configs) == (version >= 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        ("bad/", f"'bad/' {BAD_CHARS}"),
        ("na\u00efve", f"'na\u00efve' {BAD_CHARS}"),
    ],
)
def test_names(name: str, message: str) -> None:
    assert refusal(wanted(name)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {message}")


def test_the_longest_name_is_fine() -> None:
    [row] = create(StandInNode(), wanted("a" * 249))
    assert row.error_code == 0


def test_names_that_metrics_could_not_tell_apart() -> None:
    assert refusal(wanted("taken.name")) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'taken.name' already exists.",
    )
    assert refusal(wanted("taken_name")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'taken_name' collides with existing topic: taken.name",
    )
    # Within one request Kafka does not look for it.
    assert [row.error_code for row in create(StandInNode(), wanted("a.b"), wanted("a_b"))] == [0, 0]


ASSIGNED = "A manual partition assignment was specified, but"
MANUAL = "The manual partition assignment"


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            wanted("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            wanted("t", 0, -2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            wanted("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            wanted("t", -3, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            wanted("t", 1, 9),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 9 time(s): The target replication factor of 9 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            wanted("t", 10_001, 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            wanted("t", -1, 1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            f"{ASSIGNED} replication factor was not set to -1.",
        ),
        (
            wanted("t", 2, -1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            f"{ASSIGNED} numPartitions was not set to -1.",
        ),
        (
            wanted("t", -1, -1, [(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            wanted("t", -1, -1, [(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            wanted("t", -1, -1, [(-1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            wanted("t", -1, -1, [(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes an empty replica list.",
        ),
        (
            wanted("t", -1, -1, [(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes the broker 1 more than once.",
        ),
        (
            wanted("t", -1, -1, [(0, [9, 9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{MANUAL} includes broker 9, but no such broker is registered.",
        ),
        (
            wanted("t", configs=[("nix", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nix",
        ),
        (
            wanted("t", configs=[("retention.ms", None), ("segment.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        (
            wanted("t", configs=[("retention.ms", "x")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_refusals(topic: CreatableTopic, code: ErrorCode, message: str) -> None:
    assert refusal(topic) == (code, message)


def test_a_default_replication_factor_above_the_number_of_brokers() -> None:
    code, message = refusal(wanted("t"), default_replication_factor="3")
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message is not None
    assert message.startswith("Unable to replicate the partition 3 time(s): ")


def test_assignments_in_any_order() -> None:
    node = StandInNode()
    [row] = create(node, wanted("t", -1, -1, [(1, [1]), (0, [1])]))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)


def test_topics_fail_for_themselves_and_duplicates_come_last() -> None:
    node = StandInNode()
    rows = create(
        node,
        wanted("twice"),
        wanted("good", 1),
        wanted("bad/"),
        wanted("__cluster_metadata"),
        wanted("twice"),
        wanted("also.good", 1),
    )
    assert [(row.name, row.error_code, row.error_message) for row in rows] == [
        ("good", 0, None),
        ("bad/", ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: 'bad/' {BAD_CHARS}"),
        ("also.good", 0, None),
        ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            "__cluster_metadata",
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ]
    assert sorted(node.metadata.image.topics) == ["also.good", "good"]


def test_a_config_named_twice_has_its_last_value() -> None:
    node = StandInNode()
    create(node, wanted("t", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert node.metadata.image.configs[(TOPIC, "t")] == {"retention.ms": "2"}


def test_validate_only_returns_the_same_response_and_writes_nothing() -> None:
    node = StandInNode()
    offset = node.metadata.image.offset
    [row] = create(node, wanted("t", 4), validate_only=True)
    assert (row.error_code, row.num_partitions, row.topic_id != ZERO) == (0, 4, True)
    assert (node.metadata.image.offset, node.metadata.image.topics) == (offset, {})


def test_a_full_disk_is_every_topics_error() -> None:
    node = StandInNode()
    node.files.faults.append(Fault("write", errno.ENOSPC))
    rows = create(node, wanted("a"), wanted("bad/"), wanted("b"))
    assert [row.error_code for row in rows] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    assert node.metadata.image.topics == {}
    node.files.faults.clear()
    assert [row.error_code for row in create(node, wanted("a"))] == [0]


def auto_topics(node: StandInNode) -> AutoTopicCreationManager:
    return AutoTopicCreationManager(node.metadata, node.config, CreatesAtOnce(node.metadata, node.config))


def test_auto_creation() -> None:
    node = StandInNode({"num.partitions": "2"})
    responses = finish(auto_topics(node).create(["t", "bad/"]))
    assert responses["t"] is None
    error = responses["bad/"]
    assert error is not None
    assert error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(node.metadata.image.topics["t"].partitions) == 2


def test_internal_topics_have_the_parameters_of_their_coordinators() -> None:
    node = StandInNode({"offsets.topic.num.partitions": "7", "transaction.state.log.num.partitions": "8"})
    names = ["__consumer_offsets", "__transaction_state", "__share_group_state", "t"]
    responses = finish(auto_topics(node).create(names))
    codes = [error and error.code for error in (responses[name] for name in names)]
    assert codes == [None] * 4
    topics = node.metadata.image.topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {
        "__consumer_offsets": 7,
        "__transaction_state": 8,
        "__share_group_state": 50,
        "t": 1,
    }
