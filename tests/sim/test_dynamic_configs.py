"""Dynamic broker keys have an effect on the running broker, not only on the result of DescribeConfigs."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.common.batches import batch
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

BROKER = 4
HELLO = ApiVersionsRequest("test", "1")


async def alter(client: SimClient, key: str, value: str, node: str = "") -> int:
    """Set the key for all brokers, or for one; the error code."""
    rows = [AlterConfigsResource(BROKER, node, [AlterableConfig(key, 0, value)])]
    response = await client.call(IncrementalAlterConfigsRequest(rows), 1, IncrementalAlterConfigsResponse)
    return int(response.responses[0].error_code)


@pytest.mark.parametrize("restart", [False, True])
def test_log_segment_delete_delay_ms(restart: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            assert await alter(client, "log.segment.delete.delay.ms", "1000") == 0
            if restart:
                client = await broker.restart()
            request = DeleteTopicsRequest([DeleteTopicState("t")], [], 1000)
            response = await client.call(request, 6, DeleteTopicsResponse)
            assert response.responses[0].error_code == 0
            await trio.sleep(3)
            assert [name for name in broker.files.listdir(DATA_DIR) if name.startswith("t-0")] == []

    run()


@simulated
async def test_producer_id_expiration_ms() -> None:
    """A producer that was forgotten may begin anywhere; one that is known may not."""
    config = {"producer.id.expiration.check.interval.ms": "1000"}
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        await create_topic(client, "t")

        async def send(sequence: int) -> int:
            one = batch(base_timestamp=broker.clock.now_ms(), producer=(7, 0, sequence))
            return int((await produce(client, "t", one)).error_code)

        assert await send(0) == 0
        await trio.sleep(10)
        assert await send(5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await alter(client, "producer.id.expiration.ms", "5000") == 0
        await trio.sleep(10)
        assert await send(5) == 0


@simulated
async def test_max_connections_lets_those_in_that_wait() -> None:
    async with SimBroker(config={"max.connections": "1"}) as broker:
        first, second = broker.connect(), broker.connect()
        await first.call(HELLO, 3, ApiVersionsResponse)
        await second.send(HELLO, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert (second.unread(), len(broker.server_connections())) == (0, 1)
        assert await alter(first, "max.connections", "2") == 0
        with trio.fail_after(1):  # not only when the first one is closed as idle
            assert (await second.receive(ApiVersionsResponse, 3)).error_code == 0


@simulated
async def test_max_connections_holds_for_those_that_come_later() -> None:
    async with SimBroker() as broker:
        first, second = broker.connect(), broker.connect()
        assert await alter(first, "max.connections", "2") == 0
        await second.call(HELLO, 3, ApiVersionsResponse)
        third = broker.connect()
        await third.send(HELLO, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert third.unread() == 0
        second.transport.close()
        assert (await third.receive(ApiVersionsResponse, 3)).error_code == 0


@pytest.mark.parametrize("key", ["listeners", "listener.security.protocol.map"])
def test_keys_that_are_read_at_the_start_only_are_refused(key: str) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            value = {"listeners": "PLAINTEXT://127.0.0.1:1"}.get(key, "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT")
            assert await alter(broker.connect(), key, value, "1") == ErrorCode.INVALID_REQUEST

    run()
