"""ApiVersions: the response lists exactly the APIs and versions that the broker serves."""

from __future__ import annotations

import pytest

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS, ApiRow
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_every_handler_is_announced_with_its_versions() -> None:
    async with SimBroker(config={"oncelog.client.metrics.enable": "true"}) as broker:
        for version in range(ApiVersionsRequest.MAX_VERSION + 1):
            response = await broker.connect().call(
                ApiVersionsRequest("test", "1.0"), version, ApiVersionsResponse
            )
            announced = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
            assert announced == {
                row.api_key: (row.announced_min, row.max_version) for row in HANDLERS.values()
            }
            if version >= 3:
                finalized = {row.name for row in response.finalized_features}
                assert "metadata.version" in finalized
                assert finalized >= {"transaction.version", "group.version"}
                assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize("row", HANDLERS.values(), ids=lambda row: row.name)
def test_a_row_names_a_declared_api_and_versions_it_has(row: ApiRow) -> None:
    api = Api(row)
    for message in (api.request, api.response):
        assert row.api_key == message.API_KEY
        assert message.MIN_VERSION <= row.min_version <= row.max_version <= message.MAX_VERSION
    if api.request.LATEST_VERSION_UNSTABLE:
        assert row.max_version < api.request.MAX_VERSION


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", True), ("apache-kafka-java", True), ("a.b", True), ("", False), ("-a", False), ("a.", False), ("a b", False),
     ("ä", False), ("a_b", False)],
)  # fmt: skip
def test_software_names(name: str, valid: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            for request in (ApiVersionsRequest(name, "1"), ApiVersionsRequest("x", name)):
                response = await broker.connect().call(request, 3, ApiVersionsResponse)
                assert response.error_code == (0 if valid else ErrorCode.INVALID_REQUEST)

    run()
