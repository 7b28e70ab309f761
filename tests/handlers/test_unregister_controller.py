"""UnregisterController: errors in the words of a real Kafka 4.4.0."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from oncelog.wire.stored.metadata import (
    FeatureLevelRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from tests.harness.metadata_node import StandInNode


@pytest.fixture
def node() -> StandInNode:
    node = StandInNode()
    node.metadata.commit([RegisterControllerRecord(7)])
    node.records.clear()
    return node


def unregister(node: StandInNode, controller_id: int) -> UnregisterControllerResponse:
    response: UnregisterControllerResponse = node.call(UnregisterControllerRequest(controller_id), 0)
    return response


def test_a_controller_that_is_gone(node: StandInNode) -> None:
    assert unregister(node, 7) == UnregisterControllerResponse()
    assert node.records == [UnregisterControllerRecord(7)]
    assert 7 not in node.metadata.image.controllers


def test_refusals(node: StandInNode) -> None:
    assert unregister(node, 1) == UnregisterControllerResponse(
        0, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
    )
    assert unregister(node, 8) == UnregisterControllerResponse(
        0, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 8 is not currently registered."
    )
    node.metadata.commit([FeatureLevelRecord("metadata.version", 32)])
    assert unregister(node, 7) == UnregisterControllerResponse(
        0,
        ErrorCode.UNSUPPORTED_VERSION,
        "The current MetadataVersion is too old to support controller unregistration.",
    )
