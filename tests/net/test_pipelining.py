"""Pipelined requests: each gets its response, once, in order, whatever the others wait for."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor, Quotas
from oncelog.broker.net.connection import PENDING_RESPONSES_MAX
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch
from tests.harness.requests import create_topic, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import deterministic, simulated

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext
    from tests.harness.sim_client import SimClient

FLUSHED = {"flush.messages": "1"}
"""Of a topic whose producers wait for the disk."""
UNKNOWN_API = struct.pack(">ihhi", 8, 999, 0, 1)


async def offset_of(client: SimClient) -> int:
    row = (await client.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
    assert row.error_code == 0
    return int(row.base_offset)


@pytest.mark.parametrize("waits", [False, True], ids=["ready", "waits for the disk"])
@pytest.mark.parametrize(
    "last",
    [UNKNOWN_API, struct.pack(">ihhih", 10, 3, 1, 1, -2), struct.pack(">i", -1)],
    ids=["not served", "malformed", "size"],
)
@simulated
async def test_requests_before_one_that_breaks_the_protocol_get_their_responses(
    waits: bool, last: bytes
) -> None:
    """As in Kafka, which reads no request before it has sent the response to the one before."""
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=FLUSHED if waits else None)
        broker.files.latency_s = 5
        for _ in range(2):
            await client.send(produce_request("t", batch()), 9)
        await client.send_bytes(last)
        assert [await offset_of(client) for _ in range(2)] == [0, 1]
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


@simulated
async def test_requests_before_a_refused_produce_with_acks_0_get_their_responses() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await client.send(produce_request("t", batch()), 9)
        await client.send(produce_request("t", batch(crc=1), acks=0), 9)
        await client.send(produce_request("t", batch()), 9)
        assert await offset_of(client) == 0
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
        assert (await produce(broker.connect(), "t")).base_offset == 1


@simulated
async def test_a_peer_that_breaks_the_protocol_and_reads_nothing_is_closed_when_idle() -> None:
    config = {"connections.max.idle.ms": "5000"}
    async with SimBroker(config=config, pipe_bytes_max=1000) as broker:
        client = broker.connect()
        for _ in range(10):
            await client.send(ApiVersionsRequest("a", "1"), 3)
        with trio.move_on_after(1):
            await client.send_bytes(UNKNOWN_API)
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.server_connections()) == 1
        await trio.sleep(20)
        assert not broker.server_connections()


@pytest.mark.parametrize("seed", range(10))
def test_any_requests_behind_produces_that_wait_for_the_disk(seed: int) -> None:
    """An interceptor is installed and removed meanwhile."""

    async def run() -> None:
        rng = random.Random(seed)
        async with SimBroker(seed) as broker:
            dispatcher = broker.node.dispatcher
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "flushed", configs=FLUSHED)
            await create_topic(client, "t")
            await create_topic(other, "wanted")
            interceptors: list[Interceptor] = []
            sent: list[str] = []
            expected = {"flushed": 0, "t": 0}
            for _ in range(60):
                broker.files.latency_s = rng.choice((0, 0.1, 3))
                kind = rng.choice(
                    ("flushed", "flushed", "t", "no response", "list_groups", "pause", "toggle")
                )
                if kind == "pause":
                    await trio.sleep(rng.choice((0, 0.05, 1)))
                elif kind == "toggle":
                    if interceptors:
                        dispatcher.interception.remove(interceptors.pop())
                    else:
                        interceptors.append(_Waiting(rng))
                        dispatcher.interception.install(interceptors[-1])
                elif kind == "no response":
                    await client.send(produce_request("wanted", batch(), acks=0), 9)
                elif kind == "list_groups":
                    await client.send(ListGroupsRequest(), 0)
                    sent.append(kind)
                else:
                    await client.send(produce_request(kind, batch()), 9)
                    sent.append(kind)
            for kind in sent:
                if kind == "list_groups":
                    assert (await client.receive(ListGroupsResponse, 0)).error_code == 0
                else:
                    assert await offset_of(client) == expected[kind]
                    expected[kind] += 1
            await trio.sleep(60)
            assert client.unread() == 0

    deterministic(run, seed)


class _Waiting(Interceptor):
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    async def on_request(self, context: RequestContext) -> Any:
        await trio.sleep(self.rng.choice((0, 0, 0.2)))

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        await trio.sleep(self.rng.choice((0, 0, 0.2)))
        return response


@pytest.mark.slow
@simulated
async def test_so_many_produces_wait_for_the_disk_and_the_node_stops() -> None:
    """Nothing waits for ever, and no coroutine is left that was never awaited (which would fail the test run)."""
    async with SimBroker(pipe_bytes_max=1 << 20) as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=FLUSHED)
        broker.files.latency_s = 5
        for _ in range(PENDING_RESPONSES_MAX + 10):
            await client.send(produce_request("t", batch()), 9)
        await client.send(ListGroupsRequest(), 0)
        await trio.testing.wait_all_tasks_blocked()
        [connection] = broker.server_connections()
        assert len(connection.pending) == PENDING_RESPONSES_MAX
        await broker.stop()
        assert not connection.pending


class _Muting(Quotas):
    def throttle(self, principal: str, client_id: str | None, context: RequestContext, response: Any) -> int:
        return 20_000 if context.api.row.name == "produce" else 0


@simulated
async def test_a_client_is_muted_after_produces_that_waited_for_the_disk_when_quotas_came() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=FLUSHED)
        broker.files.latency_s = 5
        began = trio.current_time()
        for _ in range(2):
            await client.send(produce_request("t", batch()), 9)
        await trio.testing.wait_all_tasks_blocked()
        broker.node.dispatcher.interception.throttle_with(_Muting())
        for _ in range(2):
            assert (await client.receive(ProduceResponse, 9)).throttle_time_ms == 20_000
        told = trio.current_time()
        assert told - began < 20
        assert (await client.call(ListGroupsRequest(), 1, ListGroupsResponse)).throttle_time_ms == 0
        assert trio.current_time() == told + 20


@simulated
async def test_a_request_that_is_pipelined_behind_a_throttled_one_waits_and_the_response_does_not() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        broker.node.dispatcher.interception.throttle_with(_Muting())
        began = trio.current_time()
        await client.send(produce_request("t", batch()), 9)
        await client.send(produce_request("t", batch(), acks=0), 9)
        await client.send(ListGroupsRequest(), 0)
        assert await offset_of(client) == 0
        assert trio.current_time() == began
        assert (await client.receive(ListGroupsResponse, 0)).error_code == 0
        assert trio.current_time() == began + 20
