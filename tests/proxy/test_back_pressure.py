"""Slow peers on either side: what waits for them stays in the pipes, and nobody else waits."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.proxy.relay.in_flight import IN_FLIGHT_MAX
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.framing import encode_frame, encode_request
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.harness.requests import PRODUCE_VERSION, create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.sim_network import MemoryNetwork, MemoryTransport
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import PORT, SimProxy

PIPE_BYTES = 20_000
HELD_BYTES_MAX = 256 * 1024
"""What a proxy may hold for one direction of a connection: what it has read at once."""


async def settle() -> None:
    """Wait until nothing can go on, without time passing."""
    await trio.testing.wait_all_tasks_blocked()


@simulated
async def test_a_client_that_does_not_read_stops_upstream_and_nobody_else() -> None:
    async with (
        SimBroker(pipe_bytes_max=PIPE_BYTES) as broker,
        SimProxy(broker.open_transport, [("simulated", 9092)], pipe_bytes_max=PIPE_BYTES) as proxy,
    ):
        setup = broker.connect()
        await create_topic(setup, "t")
        await produce(setup, "t", batch([record(None, bytes(700_000))]))
        slow, quick = proxy.connect(PORT + 1), proxy.connect(PORT + 1)
        frames = 20
        for _ in range(frames):
            await slow.send(fetch_request("t", 0), 12)
        await settle()
        # The first response is on its way, and upstream has read no further request.
        assert slow.unread() <= PIPE_BYTES
        assert (await produce(quick, "t")).error_code == 0
        for _ in range(frames):
            assert len(await slow.receive_frame()) > 700_000
        assert (await produce(slow, "t")).error_code == 0


class SilentNode:
    """Accepts connections, and reads only when it is told to."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.listener = network.listen("kafka", 1000)
        self.transports: list[MemoryTransport] = []

    async def accept(self) -> None:
        while True:
            transport = self.listener.accept()
            if transport is None:
                await self.listener.wait_for_connection()
            else:
                self.transports.append(transport)
                await self._introduce(transport, is_first=len(self.transports) == 1)

    async def _introduce(self, transport: MemoryTransport, *, is_first: bool) -> None:
        """Answer the proxy's own questions: those of its start come first."""
        from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        rows = [ApiVersion(18, 0, 4), ApiVersion(3, 0, 12)]
        nodes = MetadataResponse(brokers=[MetadataResponseBroker(1, "kafka", 1000)])
        await transport.wait_readable()
        transport.receive_into(memoryview(bytearray(1000)))
        transport.send(encode_frame(b"\0\0\0\1", ApiVersionsResponse(0, rows).encode(4)))
        if not is_first:
            return
        await transport.wait_readable()
        transport.receive_into(memoryview(bytearray(1000)))
        transport.send(encode_frame(b"\0\0\0\2\0", nodes.encode(12)))


@simulated
async def test_a_node_that_does_not_read_stops_its_client() -> None:
    network = MemoryNetwork()
    node = SilentNode(network)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.accept)
        async with SimProxy(network.connect, [("kafka", 1000)], pipe_bytes_max=PIPE_BYTES) as proxy:
            client = proxy.connect(PORT + 1)
            frame = encode_request(produce_request("t", batch([record(None, bytes(900_000))])), 9, 1)
            sent = 0
            with trio.move_on_after(1):
                while True:
                    count = client.transport.send(memoryview(frame)[sent:])
                    if count < 0:
                        await client.transport.wait_writable()
                    else:
                        sent += count
            # The network's pipe, what the proxy has read at once, and the pipe to the proxy.
            assert sent <= 256 * 1024 + HELD_BYTES_MAX + PIPE_BYTES
            assert node.transports[1].pending() > 0
            # Whether the client is still there shows only when more of it can be read: it is closed as an idle one.
            client.transport.close()
            await trio.sleep(601)
            assert proxy.connections == []
        nursery.cancel_scope.cancel()


@simulated
async def test_a_client_has_a_bounded_number_of_requests_in_flight() -> None:
    network = MemoryNetwork()
    node = SilentNode(network)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.accept)
        async with SimProxy(network.connect, [("kafka", 1000)]) as proxy:
            client = proxy.connect(PORT + 1)
            for number in range(IN_FLIGHT_MAX + 500):
                await client.send_bytes(encode_request(ListGroupsRequest(), 3, number))
            await settle()
            [connection] = proxy.connections
            assert len(connection.in_flight) == IN_FLIGHT_MAX
            upstream = node.transports[1]
            body = ListGroupsResponse().encode(3)
            for number in range(IN_FLIGHT_MAX + 500):
                upstream.send(encode_frame(number.to_bytes(4, "big"), b"\0", body))
                if number % 100 == 0:
                    await settle()
            for number in range(IN_FLIGHT_MAX + 500):
                assert int.from_bytes((await client.receive_frame())[:4], "big") == number
            assert not connection.in_flight
        nursery.cancel_scope.cancel()


class Holds(Interceptor):
    """Holds Produces until it is told to let them go."""

    apis = frozenset({"Produce"})

    def __init__(self) -> None:
        self.let_go = trio.Event()

    async def on_request(self, context: RequestContext) -> Any:
        await self.let_go.wait()


@pytest.mark.parametrize("ends", ["let go", "client", "proxy"])
@simulated
async def test_while_a_request_is_held_earlier_responses_leave_and_later_requests_wait(ends: str) -> None:
    async with (
        SimBroker() as broker,
        SimProxy(broker.open_transport, [("simulated", 9092)]) as proxy,
    ):
        setup = broker.connect()
        await create_topic(setup, "t")
        holds = Holds()
        proxy.proxy.dispatcher.interception.install(holds)
        client, other = proxy.connect(PORT + 1), proxy.connect(PORT + 1)
        await client.send(ListGroupsRequest(), 3)
        await client.send(produce_request("t", batch()), PRODUCE_VERSION)
        for _ in range(5):
            await client.send(ListGroupsRequest(), 3)
        await client.receive(ListGroupsResponse, 3)
        await settle()
        assert client.unread() == 0
        await other.call(ListGroupsRequest(), 3, ListGroupsResponse)
        if ends == "let go":
            holds.let_go.set()
            row = (await client.receive(ProduceResponse, PRODUCE_VERSION)).responses[0]
            assert row.partition_responses[0].base_offset == 0
            for _ in range(5):
                await client.receive(ListGroupsResponse, 3)
        elif ends == "client":
            client.transport.close()
            holds.let_go.set()
            await settle()
            assert len(proxy.connections) == 1


@simulated
async def test_an_idle_client_is_closed_with_its_upstream_connection() -> None:
    async with (
        SimBroker() as broker,
        SimProxy(broker.open_transport, [("simulated", 9092)], {"connections.max.idle.ms": "5000"}) as proxy,
    ):
        client = proxy.connect(PORT + 1)
        await client.call(MetadataRequest([]), 9, MetadataResponse)
        assert len(broker.server_connections()) == 1
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
        assert 5 <= trio.current_time() < 11
        await settle()
        assert broker.server_connections() == []
