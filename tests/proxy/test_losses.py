"""Either side ends, or does not read, at each byte: what was forwarded before has arrived, and both connections end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.proxy.relay.responses import WHOLE_BYTES_MAX
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.framing import encode_frame, encode_request
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from oncelog.wire.messages.produce import ProduceResponse
from tests.harness.requests import fetch_request, produce_request
from tests.harness.sim_frames import send_all
from tests.harness.sim_network import MemoryNetwork, MemoryTransport
from tests.harness.simulation import simulated
from tests.proxy.memory_reactor import MemoryReactor
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

NODE_ID, OTHER_ID = 1, 2
ADDRESS = ("k" * len(HOST), 1000)
"""As long as the proxy's, so that rewritten responses are as long as they were."""

PRODUCE = encode_request(produce_request("t", b"records"), 9, 1, "c")
UNWANTED = encode_request(produce_request("t", b"records", acks=0), 9, 2, "c")
FETCH = encode_request(fetch_request("t", 0), 12, 3)
LIST_GROUPS = encode_request(ListGroupsRequest(), 3, 4)
METADATA = encode_request(MetadataRequest([]), 9, 5)
REQUESTS = (PRODUCE, UNWANTED, FETCH, LIST_GROUPS, METADATA)


def metadata(address: tuple[str, int]) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(NODE_ID, *address)])


def responses(address: tuple[str, int]) -> tuple[bytes, ...]:
    """The responses to `REQUESTS` by a cluster whose node has this address."""
    return (
        encode_frame(b"\0\0\0\1\0", ProduceResponse().encode(9)),
        encode_frame(b"\0\0\0\3\0", FetchResponse().encode(12)),
        encode_frame(b"\0\0\0\4\0", ListGroupsResponse().encode(3)),
        encode_frame(b"\0\0\0\5\0", metadata(address).encode(9)),
    )


class Node:
    """Responds to what the proxy asks for itself; then it keeps what a client's connection brings."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._listener = network.listen(*ADDRESS)
        self.received = bytearray()
        self.transport: MemoryTransport
        """The upstream connection of the client."""
        self.is_ready = trio.Event()

    async def serve(self) -> None:
        versions = ApiVersionsResponse(0, [ApiVersion(18, 0, 4), ApiVersion(3, 0, 12)]).encode(4)
        own = await self._accept()
        for response in (b"\0\0\0\1" + versions, b"\0\0\0\2\0" + metadata(ADDRESS).encode(12)):
            await self._read(own)
            await send_all(own, encode_frame(response))
        self.transport = await self._accept()
        await self._read(self.transport)
        await send_all(self.transport, encode_frame(b"\0\0\0\1", versions))
        self.is_ready.set()
        while more := await self._read(self.transport):
            self.received += more

    async def _accept(self) -> MemoryTransport:
        while (transport := self._listener.accept()) is None:
            await self._listener.wait_for_connection()
        return transport

    async def _read(self, transport: MemoryTransport) -> bytes:
        buffer = bytearray(100_000)
        while (count := transport.receive_into(memoryview(buffer))) == WOULD_BLOCK:
            await transport.wait_readable()
        return bytes(buffer[:count])


class Sees(Interceptor):
    """Sees requests and responses of an API, and changes none."""

    only_reads = True
    apis = frozenset({"Fetch"})


class Answers(Interceptor):
    """Answers ListGroups without upstream."""

    apis = frozenset({"ListGroups"})

    async def on_request(self, context: RequestContext) -> Any:
        return ListGroupsResponse()


def stops(frames: tuple[bytes, ...]) -> list[int]:
    return [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]


def whole(frames: tuple[bytes, ...], size: int) -> int:
    """How many of the first ``size`` bytes are whole frames."""
    return max(stop for stop in stops(frames) if stop <= size)


async def read_all(transport: MemoryTransport) -> bytes:
    """Return what comes to the end of the stream."""
    data, buffer = bytearray(), memoryview(bytearray(100_000))
    while count := transport.receive_into(buffer):
        if count == WOULD_BLOCK:
            await transport.wait_readable()
        else:
            data += buffer[:count]
    return bytes(data)


@pytest.mark.parametrize(("has_turns", "is_seen"), [(False, False), (True, False), (False, True)])
@simulated
async def test_a_client_that_ends_at_any_byte_has_sent_what_came_before(
    has_turns: bool, is_seen: bool
) -> None:
    data = b"".join(REQUESTS)
    for size in range(1, len(data) + 1):
        network = MemoryNetwork()
        node, reactor = Node(network), MemoryReactor() if has_turns else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve)
            async with SimProxy(network.connect, [ADDRESS], reactor=reactor) as proxy:
                if is_seen:
                    proxy.proxy.dispatcher.interception.install(Sees())
                client = proxy.connect(PORT + NODE_ID).transport
                await send_all(client, data[:size])
                client.close()
                await trio.testing.wait_all_tasks_blocked()
                assert data.startswith(node.received)
                assert len(node.received) >= whole(REQUESTS, size)
                if node.is_ready.is_set():  # a client that ends within a kept request waits for its responses
                    node.transport.end_sending()
                    await trio.testing.wait_all_tasks_blocked()
                assert proxy.connections == []
                assert proxy.proxy.server.frame_budget.used == 0
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("has_turns", "is_seen"), [(False, False), (True, False), (False, True)])
@simulated
async def test_a_node_that_ends_at_any_byte_has_sent_what_came_before(has_turns: bool, is_seen: bool) -> None:
    sent, wanted = responses(ADDRESS), responses((HOST, PORT + NODE_ID))
    data = b"".join(sent)
    for size in range(len(data) + 1):
        network = MemoryNetwork()
        node, reactor = Node(network), MemoryReactor() if has_turns else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve)
            async with SimProxy(network.connect, [ADDRESS], reactor=reactor) as proxy:
                if is_seen:
                    proxy.proxy.dispatcher.interception.install(Sees())
                client = proxy.connect(PORT + NODE_ID).transport
                await send_all(client, b"".join(REQUESTS))
                await trio.testing.wait_all_tasks_blocked()
                assert node.received == b"".join(REQUESTS)
                await send_all(node.transport, data[:size])
                node.transport.end_sending()
                received = await read_all(client)
                assert b"".join(wanted).startswith(received)
                assert len(received) >= whole(sent, size)
                await trio.testing.wait_all_tasks_blocked()
                assert proxy.connections == []
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_turns", [False, True])
@pytest.mark.parametrize("who", ["the node has sent a part", "the client has read a part"])
@simulated
async def test_a_response_of_the_proxys_own_leaves_after_one_that_has_left_in_part(
    who: str, has_turns: bool
) -> None:
    """No request is in flight then, and nothing else comes from upstream."""
    rows = [PartitionData(0, records=bytes(5_000))]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])
    data, own = encode_frame(b"\0\0\0\3\0", response.encode(12)), responses(ADDRESS)[2]
    pipe_bytes, sent = (100_000, 2_500) if who == "the node has sent a part" else (1_000, len(data))
    network = MemoryNetwork()
    node, reactor = Node(network), MemoryReactor() if has_turns else None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve)
        async with SimProxy(network.connect, [ADDRESS], pipe_bytes_max=pipe_bytes, reactor=reactor) as proxy:
            proxy.proxy.dispatcher.interception.install(Answers())
            client = proxy.connect(PORT + NODE_ID).transport
            await send_all(client, FETCH)
            await trio.testing.wait_all_tasks_blocked()
            await send_all(node.transport, data[:sent])
            await trio.testing.wait_all_tasks_blocked()
            [connection] = proxy.connections
            assert not connection.in_flight
            await send_all(client, LIST_GROUPS)
            await trio.testing.wait_all_tasks_blocked()
            await send_all(node.transport, data[sent:])
            received, buffer = bytearray(), memoryview(bytearray(100_000))
            with trio.move_on_after(1):
                while len(received) < len(data + own):
                    await client.wait_readable()
                    received += buffer[: client.receive_into(buffer)]
            assert received == data + own
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_turns", [False, True])
@simulated
async def test_a_client_that_stops_to_read_anywhere_in_the_end_of_a_large_response_gets_all_later(
    has_turns: bool,
) -> None:
    rows = [PartitionData(0, records=bytes(WHOLE_BYTES_MAX + 100))]

    def fetched(address: tuple[str, int]) -> bytes:
        nodes = [NodeEndpoint(NODE_ID, *address), NodeEndpoint(OTHER_ID, *address)]
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=rows)], node_endpoints=nodes)
        return encode_frame(b"\0\0\0\1\0", response.encode(17))

    data = fetched(ADDRESS)
    end = 2 * (4 + 1 + len(HOST) + 4 + 1 + 1) + 20
    for unread in range(end):
        network = MemoryNetwork()
        node, reactor = Node(network), MemoryReactor() if has_turns else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve)
            async with SimProxy(
                network.connect, [ADDRESS], pipe_bytes_max=len(data) - unread, reactor=reactor
            ) as proxy:
                client = proxy.connect(PORT + NODE_ID).transport
                await send_all(client, encode_request(FetchRequest(), 17, 1) + LIST_GROUPS)
                await trio.testing.wait_all_tasks_blocked()
                await send_all(node.transport, data + responses(ADDRESS)[2])
                await trio.testing.wait_all_tasks_blocked()
                assert client.pending() == len(data) - unread
                node.transport.end_sending()
                received = await read_all(client)
                got = FetchResponse.decode(received[9 : len(data)], 17)
                assert [row.node_id for row in got.node_endpoints] == [NODE_ID, OTHER_ID]
                assert [row.host for row in got.node_endpoints] == [HOST, HOST]
                assert received[len(data) :] == responses(ADDRESS)[2]
                assert received[: len(data) - end] == data[: len(data) - end]
            nursery.cancel_scope.cancel()
