"""FindCoordinator: the coordinator's node, the topic that is created for it, and errors."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [(0, 1, ErrorCode.NONE), (0, 6, ErrorCode.NONE), (1, 1, ErrorCode.NONE), (1, 6, ErrorCode.NONE),
     (2, 5, ErrorCode.INVALID_REQUEST), (9, 6, ErrorCode.INVALID_REQUEST)],
)  # fmt: skip
def test_every_key_has_a_result(key_type: int, version: int, code: ErrorCode) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            address = broker.listener.address if code is ErrorCode.NONE else ("", -1)
            node = broker.node.config.current.node_id if code is ErrorCode.NONE else -1
            if version < 4:
                response = await client.call(
                    FindCoordinatorRequest("k", key_type), version, FindCoordinatorResponse
                )
                assert (response.error_code, response.node_id, response.host, response.port) == (
                    code,
                    node,
                    *address,
                )
            else:
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k", ""])
                response = await client.call(request, version, FindCoordinatorResponse)
                got = [
                    (row.key, row.error_code, row.node_id, row.host, row.port)
                    for row in response.coordinators
                ]
                assert got == [(key, code, node, *address) for key in ("k", "")]

    run()


@simulated
async def test_the_first_request_creates_the_topic_as_kafka_does() -> None:
    async with SimBroker(config={"offsets.topic.num.partitions": "7"}) as broker:
        client = broker.connect()
        await client.call(FindCoordinatorRequest("k", 0), 1, FindCoordinatorResponse)
        asked = [MetadataRequestTopic(name="__consumer_offsets")]
        response = await client.call(MetadataRequest(asked), 12, MetadataResponse)
        [topic] = response.topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 7)
        assert {len(row.replica_nodes) for row in topic.partitions} == {1}
        config = broker.node.topic_config("__consumer_offsets")
        assert (config.compact, config.compression_type, config.segment_bytes) == (
            True,
            "producer",
            100 << 20,
        )
        assert not [name for name in broker.files.listdir("/data") if name.startswith("__consumer")]
