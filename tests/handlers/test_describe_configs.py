"""DescribeConfigs: the expected values, sources and synonyms are those of a real Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions_known import keys_without_effect
from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.handlers import describe_configs
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from oncelog.wire.stored.metadata import ConfigRecord
from tests.harness.metadata_node import StandInNode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OWN, DYNAMIC, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
STATIC_KEYS = {
    "log.retention.hours": "100",
    "log.flush.scheduler.interval.ms": "777777",
    "num.partitions": "2",
}
MALFORMED = "This most likely occurs because of a request being malformed by the client library"


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode(STATIC_KEYS)
    configs = [
        CreatableTopicConfig("retention.ms", "5000"),
        CreatableTopicConfig("cleanup.policy", "compact, delete"),
    ]
    node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, [], configs), CreatableTopic("plain", 1, 1)]), 7)
    return node


def describe(
    node: StandInNode,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(resource_type, name, keys)
    request = DescribeConfigsRequest([asked], synonyms, documentation)
    [result] = node.call(request, version).results
    assert isinstance(result, DescribeConfigsResult)
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def only(result: DescribeConfigsResult) -> DescribeConfigsResourceResult:
    [row] = result.configs
    return row


def places(row: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]


def set_dynamically(node: StandInNode, resource_name: str, name: str, value: str | None) -> None:
    node.metadata.commit([ConfigRecord(BROKER, resource_name, name, value)])


def test_a_topics_own_setting(node: StandInNode) -> None:
    result = describe(node, TOPIC, "t", ["retention.ms", "cleanup.policy", "nix"])
    assert (result.error_code, result.error_message) == (0, "")
    policy, retention = result.configs
    assert (policy.name, policy.value, policy.config_source, policy.config_type) == (
        "cleanup.policy",
        "compact,delete",
        OWN,
        7,
    )
    assert places(policy) == [
        ("cleanup.policy", "compact,delete", OWN),
        ("log.cleanup.policy", "delete", DEFAULT),
    ]
    assert (retention.value, retention.config_source, retention.config_type) == ("5000", OWN, 5)
    assert not retention.read_only
    assert not retention.is_sensitive


def test_a_topics_settings_come_from_the_broker(node: StandInNode) -> None:
    # Only the key with the highest precedence counts, and the synonyms before it are left out.
    row = only(describe(node, TOPIC, "plain", ["retention.ms"]))
    assert (row.value, row.config_source, places(row)) == ("360000000", DEFAULT, [])
    row = only(describe(node, TOPIC, "plain", ["flush.ms"]))
    assert (row.value, row.config_source, places(row)) == ("777777", DEFAULT, [])
    row = only(describe(node, TOPIC, "plain", ["min.insync.replicas"]))
    assert places(row) == [
        ("min.insync.replicas", "1", DYNAMIC_DEFAULT),
        ("min.insync.replicas", "1", DEFAULT),
    ]
    set_dynamically(node, "1", "log.retention.ms", "7000")
    set_dynamically(node, "", "log.retention.ms", "9000")
    row = only(describe(node, TOPIC, "plain", ["retention.ms"]))
    assert (row.value, row.config_source) == ("7000", DYNAMIC)
    assert places(row) == [
        ("log.retention.ms", "7000", DYNAMIC),
        ("log.retention.ms", "9000", DYNAMIC_DEFAULT),
        ("log.retention.hours", "100", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    set_dynamically(node, "1", "log.retention.ms", None)
    row = only(describe(node, TOPIC, "plain", ["retention.ms"]))
    assert (row.value, row.config_source) == ("9000", DYNAMIC_DEFAULT)
    row = only(describe(node, TOPIC, "t", ["retention.ms"]))
    assert (row.value, row.config_source, places(row)[0]) == ("5000", OWN, ("retention.ms", "5000", OWN))


def test_all_of_a_topics_keys(node: StandInNode) -> None:
    no_keys: list[list[str] | None] = [None, []]
    for keys in no_keys:
        rows = describe(node, TOPIC, "plain", keys).configs
        assert len(rows) == 37
        assert {row.name for row in rows} == {
            name for name, key in TopicConfig.KEYS.items() if not key.internal
        }
        assert all(row.config_type for row in rows)


def test_the_brokers_keys(node: StandInNode) -> None:
    rows = {row.name: row for row in describe(node, BROKER, "1").configs}
    keys = {**keys_without_effect(), **BrokerConfig.KEYS}
    assert set(rows) == {name for name, key in keys.items() if not key.internal}
    assert len(rows) == 350  # as Kafka
    row = rows["num.partitions"]
    assert (row.value, row.config_source, row.read_only, row.config_type) == ("2", STATIC, True, 3)
    assert places(row) == [("num.partitions", "2", STATIC), ("num.partitions", "1", DEFAULT)]
    row = rows["log.retention.ms"]
    assert (row.value, row.config_source, row.read_only, places(row)) == (None, DEFAULT, False, [])
    assert rows["log.segment.bytes"].value == "1073741824"
    set_dynamically(node, "1", "log.retention.ms", "7000")
    row = only(describe(node, BROKER, "1", ["log.retention.ms"]))
    assert (row.value, row.config_source) == ("7000", DYNAMIC)


def test_keys_without_effect_and_names_that_are_no_keys() -> None:
    """They are as in Kafka, except that they are read-only."""
    given = {
        "num.io.threads": " 4 ",
        "ssl.keystore.password": "hunter2",
        "super.users": "User:a",
        "leader.replication.throttled.rate": "5",
        "unstable.api.versions.enable": "true",
        "listener.name.a.connections.max.idle.ms": "7",
        "listener.name.a.plain.sasl.jaas.config": "hunter2",
    }
    found = describe(StandInNode(given), BROKER, "1", documentation=True)
    rows = {row.name: row for row in found.configs}
    assert len(rows) == 350 + 5
    row = rows["num.io.threads"]
    assert (row.value, row.config_source, row.read_only, row.config_type) == ("4", STATIC, True, 3)
    assert places(row) == [("num.io.threads", " 4 ", STATIC), ("num.io.threads", "8", DEFAULT)]
    assert row.documentation == "Threads that handle requests."
    row = rows["ssl.keystore.password"]
    assert (row.value, row.is_sensitive, places(row)) == (
        None,
        True,
        [("ssl.keystore.password", None, STATIC)],
    )
    row = rows["super.users"]
    assert (row.value, row.is_sensitive, row.config_type, row.read_only) == (None, True, 0, True)
    assert (row.config_source, row.documentation, places(row)) == (
        STATIC,
        None,
        [("super.users", None, STATIC)],
    )
    row = rows["leader.replication.throttled.rate"]
    assert (row.value, places(row)) == ("5", [("leader.replication.throttled.rate", "5", STATIC)])
    assert rows["unstable.api.versions.enable"].config_type == 1
    row = rows["listener.name.a.connections.max.idle.ms"]
    assert (row.value, row.config_type) == ("7", 5)
    assert places(row)[1:] == [("connections.max.idle.ms", "600000", DEFAULT)]
    row = rows["listener.name.a.plain.sasl.jaas.config"]
    assert (row.value, row.is_sensitive, row.config_type) == (None, True, 9)
    assert "hunter2" not in str(found)


def test_keys_without_effect_that_another_broker_stored(node: StandInNode) -> None:
    set_dynamically(node, "", "num.io.threads", "16")
    row = only(describe(node, BROKER, "1", ["num.io.threads"]))
    assert (row.value, row.config_source) == ("8", DEFAULT)
    row = only(describe(node, BROKER, "", ["num.io.threads"]))
    assert (row.value, places(row)) == ("16", [("num.io.threads", "16", DYNAMIC_DEFAULT)])


def test_dynamic_defaults_of_all_brokers(node: StandInNode) -> None:
    set_dynamically(node, "", "log.retention.ms", "9000")
    set_dynamically(node, "1", "log.segment.bytes", "2000000")
    retention, replicas = describe(node, BROKER, "").configs
    assert (retention.name, retention.value, retention.config_source) == (
        "log.retention.ms",
        "9000",
        DYNAMIC_DEFAULT,
    )
    assert places(retention) == [("log.retention.ms", "9000", DYNAMIC_DEFAULT)]
    assert (replicas.name, places(replicas)) == (
        "min.insync.replicas",
        [("min.insync.replicas", "1", DYNAMIC_DEFAULT)],
    )


def test_synonyms_types_and_documentation_on_request(node: StandInNode) -> None:
    row = only(describe(node, TOPIC, "t", ["retention.ms"], synonyms=False))
    assert (row.synonyms, row.config_source, row.documentation) == ([], OWN, None)
    row = only(describe(node, TOPIC, "t", ["retention.ms"], documentation=True))
    assert row.documentation == TopicConfig.KEYS["retention.ms"].documentation
    row = only(describe(node, TOPIC, "t", ["retention.ms"], version=2))
    assert row.config_type == 0
    assert places(row) == [("retention.ms", "5000", OWN)]
    assert only(describe(node, TOPIC, "t", ["retention.ms"], version=3)).config_type == 5


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            TOPIC,
            "",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            BROKER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER, "\u00b2", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: \u00b2"),
        (BROKER, "+-1", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: +-1"),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
    ],
)
def test_refusals(node: StandInNode, resource_type: int, name: str, code: ErrorCode, message: str) -> None:
    result = describe(node, resource_type, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


def test_a_refused_resource_costs_the_others_nothing_but_an_unknown_type_does(node: StandInNode) -> None:
    fine, missing = (
        DescribeConfigsResource(TOPIC, "t", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "nope", None),
    )
    results = node.call(DescribeConfigsRequest([missing, fine]), 4).results
    assert [(row.resource_name, row.error_code, len(row.configs)) for row in results] == [
        ("nope", 3, 0),
        ("t", 0, 1),
    ]
    results = node.call(DescribeConfigsRequest([DescribeConfigsResource(99, "q", None), fine]), 4).results
    assert [(row.resource_name, row.error_code, row.configs) for row in results] == [
        ("q", ErrorCode.INVALID_REQUEST, []),
        ("t", ErrorCode.INVALID_REQUEST, []),
    ]
    assert all(row.error_message.startswith(MALFORMED) for row in results)


def test_a_resource_that_is_requested_again_shares_one_row(
    node: StandInNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    describe_one = describe_configs._describe

    def counted(image: Any, config: Any, asked: DescribeConfigsResource, *, documentation: bool) -> Any:
        described.append(asked.resource_name)
        return describe_one(image, config, asked, documentation=documentation)

    monkeypatch.setattr(describe_configs, "_describe", counted)
    asked = [
        DescribeConfigsResource(TOPIC, "t", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "plain", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "t", ["retention.ms", "cleanup.policy"]),
        DescribeConfigsResource(TOPIC, "t", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "no", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "no", ["retention.ms"]),
    ]
    results = node.call(DescribeConfigsRequest(asked), 4).results
    got = [(one.resource_name, one.error_code, [row.value for row in one.configs]) for one in results]
    assert got == [
        ("t", 0, ["5000"]),
        ("plain", 0, ["360000000"]),
        ("t", 0, ["compact,delete", "5000"]),
        ("t", 0, ["5000"]),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]
    assert described == ["t", "plain", "t", "no"]
