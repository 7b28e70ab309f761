"""IncrementalAlterConfigs: changes, and errors in the words of a real Kafka 4.3.1."""

from __future__ import annotations

import errno

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.stored.metadata import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from tests.harness.metadata_node import StandInNode
from tests.sim.disk import Fault

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
    node.records.clear()
    return node


def resource(resource_type: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(resource_type, name, [AlterableConfig(*change) for change in changes])


def alter(
    node: StandInNode, *resources: AlterConfigsResource, version: int = 1, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    response = node.call(IncrementalAlterConfigsRequest(list(resources), validate_only), version)
    assert [(row.resource_type, row.resource_name) for row in response.responses] == [
        (row.resource_type, row.resource_name) for row in resources
    ]
    return [(row.error_code, row.error_message) for row in response.responses]


def settings(node: StandInNode, resource_type: int = TOPIC, name: str = "t") -> dict[str, str]:
    return node.metadata.image.configs.get((resource_type, name), {})


@pytest.mark.parametrize("version", [0, 1])
def test_set_and_delete(node: StandInNode, version: int) -> None:
    change = resource(TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "8"))
    assert alter(node, change, version=version) == [(0, None)]
    assert settings(node) == {"retention.ms": "7", "segment.ms": "8"}
    change = resource(TOPIC, "t", ("retention.ms", DELETE, "ignored"), ("flush.ms", DELETE, None))
    assert alter(node, change, version=version) == [(0, None)]
    assert settings(node) == {"segment.ms": "8"}


def test_lists(node: StandInNode) -> None:
    steps = [
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, "delete,compact,delete", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
    ]
    for operation, value, expected in steps:
        assert alter(node, resource(TOPIC, "t", ("cleanup.policy", operation, value))) == [(0, None)]
        assert settings(node) == {"cleanup.policy": expected}
    alter(node, resource(TOPIC, "t", ("cleanup.policy", DELETE, None)))
    assert alter(node, resource(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))) == [(0, None)]
    assert settings(node) == {"cleanup.policy": ""}


def test_a_list_begins_with_kafkas_default_and_not_the_brokers() -> None:
    node = StandInNode({"log.cleanup.policy": "compact"})
    node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
    alter(node, resource(TOPIC, "t", ("cleanup.policy", APPEND, "compact")))
    assert settings(node) == {"cleanup.policy": "delete,compact"}


def test_only_what_changes_is_written_but_for_brokers(node: StandInNode) -> None:
    for _ in range(2):
        alter(node, resource(TOPIC, "t", ("retention.ms", SET, "7")))
        alter(node, resource(BROKER, "1", ("log.retention.ms", SET, "7")))
    assert node.records == [
        ConfigRecord(TOPIC, "t", "retention.ms", "7"),
        ConfigRecord(BROKER, "1", "log.retention.ms", "7"),
        ConfigRecord(BROKER, "1", "log.retention.ms", "7"),
    ]


def test_a_brokers_settings_take_effect(node: StandInNode) -> None:
    assert node.config.current.log_retention_ms is None
    alter(node, resource(BROKER, "", ("log.retention.ms", SET, "9000")))
    assert node.config.current.log_retention_ms == 9000
    alter(node, resource(BROKER, "1", ("log.retention.ms", SET, "7000")))
    assert node.config.current.log_retention_ms == 7000
    alter(node, resource(BROKER, "1", ("log.retention.ms", DELETE, None)))
    assert node.config.current.log_retention_ms == 9000
    alter(node, resource(BROKER, "", ("log.cleanup.policy", APPEND, "compact")))
    assert node.config.current.log_cleanup_policy == ("delete", "compact")


DYNAMICALLY = "Cannot update these configs dynamically"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            resource(TOPIC, "t", ("retention.ms", SET, "7"), ("retention.ms", DELETE, None)),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            resource(TOPIC, "t", ("retention.ms", SET, None), ("segment.ms", APPEND, None)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms, segment.ms",
        ),
        (
            resource(TOPIC, "t", ("retention.ms", APPEND, "7")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "t", ("nix", SUBTRACT, "7")),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key nix because its type is not LIST.",
        ),
        (resource(TOPIC, "t", ("nix", SET, "7")), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nix"),
        (
            resource(TOPIC, "t", ("retention.ms", SET, "x")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            resource(TOPIC, "t", ("retention.ms", 9, "x")),
            ErrorCode.INVALID_REQUEST,
            "Unknown operations type 9",
        ),
        (
            resource(TOPIC, "nope", ("retention.ms", SET, "7")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            resource(TOPIC, "", ("retention.ms", SET, "7")),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            resource(TOPIC, "..", ("retention.ms", SET, "7")),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: '..' is not allowed",
        ),
        (
            resource(BROKER, "1", ("num.partitions", SET, "7")),
            ErrorCode.INVALID_REQUEST,
            f"{DYNAMICALLY}: [num.partitions]",
        ),
        (
            resource(BROKER, "1", ("no.such.key", SET, "7"), ("background.threads", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            f"{DYNAMICALLY}: [background.threads, no.such.key]",
        ),
        (
            resource(BROKER, "1", ("log.retention.ms", SET, "x")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            resource(BROKER, "2", ("log.retention.ms", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            resource(BROKER, "x", ("log.retention.ms", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            resource(BROKER, "1", ("log.retention.ms", APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (
            resource(BROKER, "1", ("foo", SUBTRACT, "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown config name: foo",
        ),
        (
            resource(BROKER, "1", ("min.insync.replicas", SET, "1")),
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            resource(BROKER, "", ("min.insync.replicas", DELETE, None)),
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            resource(BROKER, "", ("min.insync.replicas", SET, "0")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (resource(8, "1", ("root", SET, "INFO")), ErrorCode.INVALID_CONFIG, "Logger root does not exist!"),
        (
            resource(16, "m", ("x", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: x",
        ),
        (resource(99, "1", ("root", SET, "INFO")), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_refusals(node: StandInNode, change: AlterConfigsResource, code: ErrorCode, message: str) -> None:
    for validate_only in (True, False):
        assert alter(node, change, validate_only=validate_only) == [(code, message)]
    assert node.records == []


def test_a_resource_changes_as_a_whole_and_for_itself(node: StandInNode) -> None:
    responses = alter(
        node,
        resource(TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "x")),
        resource(BROKER, "1", ("log.segment.bytes", SET, "2000000")),
    )
    assert [code for code, _ in responses] == [ErrorCode.INVALID_CONFIG, 0]
    assert (settings(node), settings(node, BROKER, "1")) == ({}, {"log.segment.bytes": "2000000"})


def test_a_resource_named_twice_is_refused_both_times(node: StandInNode) -> None:
    change = resource(TOPIC, "t", ("retention.ms", SET, "7"))
    other = resource(BROKER, "1", ("log.segment.bytes", SET, "2000000"))
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(node, change, other, change) == [twice, (0, None), twice]
    assert settings(node) == {}


def test_validate_only_writes_nothing(node: StandInNode) -> None:
    assert alter(node, resource(TOPIC, "t", ("retention.ms", SET, "7")), validate_only=True) == [(0, None)]
    assert node.records == []


def test_a_list_that_becomes_too_long(node: StandInNode) -> None:
    name = "leader.replication.throttled.replicas"
    half = ",".join(f"{index}:1" for index in range(3000))
    more = ",".join(f"{index}:1" for index in range(3000, 7000))
    assert alter(node, resource(TOPIC, "t", (name, SET, half))) == [(0, None)]
    [(code, message)] = alter(node, resource(TOPIC, "t", (name, APPEND, more)))
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert message.endswith("exceeds the maximum value size of 32767 bytes.")
    assert settings(node) == {name: half}


def test_new_minimum_of_replicas_clears_the_eligible_leaders(node: StandInNode) -> None:
    alter(node, resource(TOPIC, "t", ("min.insync.replicas", SET, "2")))
    alter(node, resource(BROKER, "", ("min.insync.replicas", SET, "1")))
    assert [record for record in node.records if isinstance(record, ClearElrRecord)] == [
        ClearElrRecord("t"),
        ClearElrRecord(""),
    ]
    node.metadata.commit([FeatureLevelRecord("eligible.leader.replicas.version", 0)])
    node.records.clear()
    assert alter(node, resource(BROKER, "1", ("min.insync.replicas", SET, "1"))) == [(0, None)]
    assert alter(node, resource(BROKER, "", ("min.insync.replicas", DELETE, None))) == [(0, None)]
    assert not any(isinstance(record, ClearElrRecord) for record in node.records)


def test_keys_that_another_broker_stored_stay(node: StandInNode) -> None:
    node.metadata.commit([ConfigRecord(BROKER, "1", "ssl.cipher.suites", "x")])
    assert alter(node, resource(BROKER, "1", ("log.retention.ms", SET, "7"))) == [(0, None)]
    assert settings(node, BROKER, "1") == {"ssl.cipher.suites": "x", "log.retention.ms": "7"}


def test_a_full_disk(node: StandInNode) -> None:
    node.files.faults.append(Fault("write", errno.ENOSPC))
    responses = alter(
        node,
        resource(TOPIC, "t", ("retention.ms", SET, "7")),
        resource(TOPIC, "..", ("retention.ms", SET, "7")),
    )
    assert [code for code, _ in responses] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert settings(node) == {}
