"""A group's own configuration: set, described, listed, refused (ConfigResource type GROUP)."""

from __future__ import annotations

import pytest

from oncelog.broker.config.group_config import GroupConfig
from oncelog.wire.errors import ErrorCode
from tests.handlers.test_describe_configs import DEFAULT, DYNAMIC_DEFAULT, GROUP, STATIC, describe
from tests.handlers.test_incremental_alter_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    alter,
    resource,
    settings,
)
from tests.handlers.test_list_config_resources import listed
from tests.harness.metadata_node import StandInNode

OWN_GROUP = 8
SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


@pytest.fixture
def node() -> StandInNode:
    return StandInNode({"group.consumer.heartbeat.interval.ms": "6000"})


def test_set_described_listed_and_deleted(node: StandInNode) -> None:
    assert alter(node, resource(GROUP, "g", (SESSION, SET, "50000"), (INTERVAL, SET, "0"))) == [(0, None)]
    assert settings(node, GROUP, "g") == {SESSION: "50000", INTERVAL: "0"}
    assert listed(node, GROUP) == (0, [(GROUP, "g")])
    rows = {row.name: row for row in describe(node, GROUP, "g").configs}
    assert list(rows) == sorted(name for name, key in GroupConfig.KEYS.items() if not key.internal)
    assert (rows[SESSION].value, rows[SESSION].config_source) == ("50000", OWN_GROUP)
    assert [(row.name, row.value, row.source) for row in rows[SESSION].synonyms] == [
        (SESSION, "50000", OWN_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert (rows[HEARTBEAT].value, rows[HEARTBEAT].config_source) == ("6000", STATIC)
    assert (rows["share.auto.offset.reset"].value, rows["streams.num.standby.replicas"].value) == (
        "latest",
        "0",
    )
    assert not any(row.read_only or row.is_sensitive for row in rows.values())
    assert alter(node, resource(GROUP, "g", (SESSION, DELETE, None), (INTERVAL, DELETE, None))) == [(0, None)]
    assert listed(node, GROUP) == (0, [])


def test_the_brokers_dynamic_default_shows(node: StandInNode) -> None:
    interval = "group.consumer.assignment.interval.ms"
    assert alter(node, resource(BROKER, "", (interval, SET, "7"))) == [(0, None)]
    (row,) = describe(node, GROUP, "g", [INTERVAL]).configs
    assert (row.value, row.config_source) == ("7", DYNAMIC_DEFAULT)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("nix", "1", "Unknown group config name: nix"),
        (
            SESSION,
            "44999",
            f"{SESSION} must be in the range 45000 to 60000 inclusive.",
        ),
        (SESSION, "60001", f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        (
            HEARTBEAT,
            "4999",
            f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive.",
        ),
        (
            HEARTBEAT,
            "15001",
            f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive.",
        ),
        (
            INTERVAL,
            "15001",
            f"{INTERVAL} must be in the range 0 to 15000 inclusive.",
        ),
        (INTERVAL, "-1", f"Invalid value -1 for configuration {INTERVAL}: Value must be at least 0"),
        (SESSION, "x", f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (
            "share.isolation.level",
            "none",
            "Invalid value none for configuration share.isolation.level: String must be one of: read_committed, "
            "read_uncommitted",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
    ],
)
def test_refused(node: StandInNode, key: str, value: str, message: str) -> None:
    assert alter(node, resource(GROUP, "g", (key, SET, value))) == [(ErrorCode.INVALID_CONFIG, message)]
    assert settings(node, GROUP, "g") == {}


@pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT3.5s"])
def test_share_offsets_reset(node: StandInNode, value: str) -> None:
    assert alter(node, resource(GROUP, "g", ("share.auto.offset.reset", SET, value))) == [(0, None)]


@pytest.mark.parametrize(
    "value", ["none", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT-1H", "1"]
)
def test_share_offsets_not_reset(node: StandInNode, value: str) -> None:
    ((code, message),) = alter(node, resource(GROUP, "g", ("share.auto.offset.reset", SET, value)))
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert message.startswith(
        f"Invalid value {value} for configuration share.auto.offset.reset: Invalid value"
    )


def test_no_lists_and_no_default_group(node: StandInNode) -> None:
    text = f"Can't APPEND to key {SESSION} because its type is not LIST."
    assert alter(node, resource(GROUP, "g", (SESSION, APPEND, "1"))) == [(ErrorCode.INVALID_CONFIG, text)]
    text = "Default group resources are not allowed."
    assert alter(node, resource(GROUP, "", (SESSION, SET, "50000"))) == [(ErrorCode.INVALID_REQUEST, text)]


def test_the_session_is_longer_than_the_heartbeat() -> None:
    node = StandInNode({"group.consumer.max.heartbeat.interval.ms": "60000"})
    text = f"{SESSION} must be greater than {HEARTBEAT}"
    assert alter(node, resource(GROUP, "g", (HEARTBEAT, SET, "45000"))) == [(ErrorCode.INVALID_CONFIG, text)]


@pytest.mark.parametrize(
    ("key", "good", "bad", "message"),
    [
        (
            "share.session.timeout.ms",
            "40000",
            "39999",
            "in the range 40000 to 60000 inclusive.",
        ),
        (
            "share.delivery.count.limit",
            "9",
            "10",
            "in the range 2 to 9 inclusive.",
        ),
        (
            "streams.num.standby.replicas",
            "4",
            "5",
            "less than or equal to 4",
        ),
        (
            "streams.assignment.interval.ms",
            "500",
            "499",
            "in the range 500 to 15000 inclusive.",
        ),
    ],
)
def test_the_brokers_own_bounds_hold(key: str, good: str, bad: str, message: str) -> None:
    node = StandInNode(
        {
            "group.share.min.session.timeout.ms": "40000",
            "group.share.max.delivery.count.limit": "9",
            "group.streams.max.standby.replicas": "4",
            "group.streams.min.assignment.interval.ms": "500",
        }
    )
    assert alter(node, resource(GROUP, "g", (key, SET, good))) == [(0, None)]
    refused = (ErrorCode.INVALID_CONFIG, f"{key} must be {message}")
    assert alter(node, resource(GROUP, "g", (key, SET, bad))) == [refused]
