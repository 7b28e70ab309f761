"""ListConfigResources: brokers and topics by name."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.wire.stored.metadata import ConfigRecord
from tests.harness.metadata_node import StandInNode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1), CreatableTopic("u", 1, 1)]), 7)
    return node


def listed(node: StandInNode, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    response: Any = node.call(ListConfigResourcesRequest(list(types)), version)
    return response.error_code, sorted(
        (row.resource_type, row.resource_name) for row in response.config_resources
    )


def test_listed_resources(node: StandInNode) -> None:
    everything = [(TOPIC, "t"), (TOPIC, "u"), (BROKER, "1")]
    assert listed(node) == (0, [*everything, (BROKER_LOGGER, "1")])
    assert listed(node, BROKER, TOPIC) == (0, everything)
    assert listed(node, TOPIC) == (0, everything[:2])
    assert listed(node, GROUP, CLIENT_METRICS) == (0, [])
    assert listed(node, BROKER_LOGGER) == (0, [(BROKER_LOGGER, "1")])


@pytest.mark.parametrize("types", [(99,), (TOPIC, 0), (-1,)])
def test_an_unknown_type(node: StandInNode, types: tuple[int, ...]) -> None:
    assert listed(node, *types) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_version_0_lists_client_metrics(node: StandInNode) -> None:
    assert listed(node, version=0) == (0, [])
    node.metadata.commit([ConfigRecord(CLIENT_METRICS, "m", "metrics", "a.")])
    assert listed(node, version=0) == (0, [(CLIENT_METRICS, "m")])
    assert listed(node, CLIENT_METRICS) == (0, [(CLIENT_METRICS, "m")])
