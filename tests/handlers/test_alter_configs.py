"""AlterConfigs: a resource's settings are those of the request and no others."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.harness.metadata_node import StandInNode

TOPIC, BROKER = 2, 4


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    configs = [CreatableTopicConfig("retention.ms", "5"), CreatableTopicConfig("segment.ms", "6")]
    node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, [], configs)]), 7)
    node.records.clear()
    return node


def alter(
    node: StandInNode,
    resource_type: int,
    name: str,
    settings: dict[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [AlterableConfig(key, value) for key, value in settings.items()]
    request = AlterConfigsRequest([AlterConfigsResource(resource_type, name, configs)], validate_only)
    [row] = node.call(request, version).responses
    assert (row.resource_type, row.resource_name) == (resource_type, name)
    return row.error_code, row.error_message


def settings(node: StandInNode, resource_type: int = TOPIC, name: str = "t") -> dict[str, str]:
    return node.metadata.image.configs.get((resource_type, name), {})


@pytest.mark.parametrize("version", range(3))
def test_keys_that_are_not_named_are_removed(node: StandInNode, version: int) -> None:
    assert alter(node, TOPIC, "t", {"segment.ms": "6", "flush.ms": "7"}, version=version) == (0, None)
    assert settings(node) == {"segment.ms": "6", "flush.ms": "7"}
    assert len(node.records) == 2
    assert alter(node, TOPIC, "t", {}, version=version) == (0, None)
    assert settings(node) == {}


def test_validate_only(node: StandInNode) -> None:
    assert alter(node, TOPIC, "t", {}, validate_only=True) == (0, None)
    assert settings(node) == {"retention.ms": "5", "segment.ms": "6"}


def test_a_broker(node: StandInNode) -> None:
    assert alter(node, BROKER, "1", {"log.retention.ms": "12"}) == (0, None)
    assert node.config.current.log_retention_ms == 12
    assert alter(node, BROKER, "1", {}) == (0, None)
    assert node.config.current.log_retention_ms is None


@pytest.mark.parametrize(
    ("resource_type", "name", "changes", "code", "message"),
    [
        (TOPIC, "nope", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        (TOPIC, "t", {"nix": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: nix"),
        (
            TOPIC,
            "t",
            {"segment.ms": None},
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : segment.ms",
        ),
        (
            BROKER,
            "",
            {"log.retention.ms": "12"},
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            BROKER,
            "1",
            {"node.id": "2"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (8, "1", {}, ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
    ],
)
def test_refusals(
    node: StandInNode,
    resource_type: int,
    name: str,
    changes: dict[str, str | None],
    code: ErrorCode,
    message: str,
) -> None:
    assert alter(node, resource_type, name, changes) == (code, message)
    assert node.records == []
