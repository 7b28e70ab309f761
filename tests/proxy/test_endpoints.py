"""Node endpoints at the end of responses: found, rewritten in place, and on their way through a proxy."""

from __future__ import annotations

import random

import pytest
import trio

from oncelog.broker.proxy.endpoints import TAIL_BYTES, Endpoint, find_endpoints, has_endpoints, rewrite_tail
from oncelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from oncelog.wire.messages.produce import NodeEndpoint as ProduceEndpoint
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_network import MemoryNetwork
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

VERSION = 17


def fetched(endpoints: list[NodeEndpoint], records: bytes = b"") -> FetchResponse:
    row = PartitionData(0, 6, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[row])], node_endpoints=endpoints)


def random_endpoints(rng: random.Random) -> list[NodeEndpoint]:
    return [
        NodeEndpoint(
            rng.randrange(10**6),
            rng.choice(("localhost", "127.0.0.1", "kafka-1.example.org", "x" * rng.randrange(1, 200))),
            rng.randrange(1, 65536),
            rng.choice((None, "", "rack-a")),
        )
        for _ in range(rng.randrange(1, 5))
    ]


@pytest.mark.parametrize("seed", range(50))
def test_they_are_found(seed: int) -> None:
    rng = random.Random(seed)
    endpoints = random_endpoints(rng)
    records = rng.choice((b"", rng.randbytes(3000), b"\x01\x00" * 500, bytes(2000)))
    found = find_endpoints(fetched(endpoints, records).encode(VERSION))
    assert found is not None
    assert [row[:3] for row in found[1]] == [(row.node_id, row.host, row.port) for row in endpoints]
    assert has_endpoints(fetched(endpoints, records).encode(VERSION))
    assert find_endpoints(fetched([], records).encode(VERSION)) is None
    assert not has_endpoints(fetched([], records).encode(VERSION))
    for port in (256, 36 * 256, 9092, 65280, 1):
        one = [NodeEndpoint(1, "kafka", port)]
        assert has_endpoints(fetched(one, records).encode(VERSION))


@pytest.mark.parametrize("seed", range(200))
def test_a_tail_keeps_its_length(seed: int) -> None:
    rng = random.Random(seed)
    endpoints = random_endpoints(rng)
    data = bytearray(fetched(endpoints, bytes(TAIL_BYTES)).encode(VERSION))
    host = "y" * rng.randrange(1, 40)

    def address_of(node: Endpoint) -> tuple[str, int]:
        return host, 9000 + node.node_id % 10

    size = len(data)
    rewrite_tail(memoryview(data)[-TAIL_BYTES:], address_of)
    assert len(data) == size
    told = FetchResponse.decode(bytes(data), VERSION)
    expected = [NodeEndpoint(row.node_id, host, 9000 + row.node_id % 10, row.rack) for row in endpoints]
    assert told.node_endpoints in ([], expected)
    if len(endpoints) * len(host) <= sum(len(row.host) for row in endpoints) - 4:
        assert told.node_endpoints == expected
    told.node_endpoints = []
    assert told == fetched([], bytes(TAIL_BYTES))


@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
@pytest.mark.parametrize("pipe_bytes", [4096, 300_000])
@simulated
async def test_they_pass_a_proxy_rewritten(size: int, pipe_bytes: int) -> None:
    network = MemoryNetwork()
    upstream = ScriptedBroker(network.listen("kafka", 1000))
    told = [MetadataResponseBroker(1, "kafka", 1000), MetadataResponseBroker(2, "upstream-node", 9999)]
    upstream.on(MetadataRequest, lambda request, version: MetadataResponse(brokers=told))
    upstream.on(
        FetchRequest,
        lambda request, version: fetched([NodeEndpoint(2, "upstream-node", 9999)], bytes(size)),
    )
    upstream.on(
        ProduceRequest,
        lambda request, version: ProduceResponse(node_endpoints=[ProduceEndpoint(3, "another-one", 7)]),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.serve)
        async with SimProxy(network.connect, [("kafka", 1000)], pipe_bytes_max=pipe_bytes) as proxy:
            client = proxy.connect()
            for _ in range(3):
                response = await client.call(FetchRequest(), VERSION, FetchResponse)
                assert response.node_endpoints == [NodeEndpoint(2, HOST, PORT + 2)]
                assert len(response.responses[0].partitions[0].records) == size
            produced = await client.call(ProduceRequest(acks=1), 11, ProduceResponse)
            assert produced.node_endpoints == [ProduceEndpoint(3, HOST, PORT + 3)]
            assert (HOST, PORT + 3) in proxy.sockets
        nursery.cancel_scope.cancel()
