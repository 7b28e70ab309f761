"""Node endpoints at the end of responses: found, rewritten in place, and on their way through a proxy."""

from __future__ import annotations

import contextlib
import random

import pytest
import trio

from oncelog.broker.proxy.relay.endpoints import Endpoint, find_endpoints, has_endpoints, rewrite_fields
from oncelog.broker.proxy.relay.fetch_walk import FetchWalk
from oncelog.wire.errors import DecodeError
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
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
_FIELD = b"\x02\0\0\0\1\x06evil!\0\0\x24\0"
LIKE_ENDPOINTS = b"\x01\0" + bytes((len(_FIELD) + 2,)) + _FIELD
"""Records that, with what follows them in a response, look as node endpoints do."""


def fetched(endpoints: list[NodeEndpoint], records: bytes = b"") -> FetchResponse:
    row = PartitionData(0, 6, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[row])], node_endpoints=endpoints)


def frame(response: FetchResponse) -> bytes:
    body = b"\0\0\0\7\0" + response.encode(VERSION)
    return len(body).to_bytes(4, "big") + body


def seems_to_have(response: FetchResponse) -> bool:
    return has_endpoints(memoryview(frame(response)), is_fetch=True)


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
    records = rng.choice((b"", rng.randbytes(3000), b"\x01\x00" * 500, bytes(2000), LIKE_ENDPOINTS * 300))
    found = find_endpoints(fetched(endpoints, records).encode(VERSION))
    assert [row[:3] for row in found] == [(row.node_id, row.host, row.port) for row in endpoints]
    assert seems_to_have(fetched(endpoints, records))
    assert find_endpoints(fetched([], records).encode(VERSION)) == []
    assert not seems_to_have(fetched([], records))
    for port in (256, 36 * 256, 9092, 65280, 1):
        assert seems_to_have(fetched([NodeEndpoint(1, "kafka", port)], records))


@pytest.mark.parametrize("seed", range(200))
def test_a_tail_keeps_its_length(seed: int) -> None:
    rng = random.Random(seed)
    endpoints = random_endpoints(rng)
    whole = fetched(endpoints, bytes(100)).encode(VERSION)
    at = len(fetched([], bytes(100)).encode(VERSION)) - 1
    fields = bytearray(whole[at:])
    host = "y" * rng.randrange(1, 40)

    def address_of(node: Endpoint) -> tuple[str, int]:
        return host, 9000 + node.node_id % 10

    rewrite_fields(memoryview(fields), address_of)
    assert at + len(fields) == len(whole)
    told = FetchResponse.decode(whole[:at] + fields, VERSION)
    expected = [NodeEndpoint(row.node_id, host, 9000 + row.node_id % 10, row.rack) for row in endpoints]
    assert told.node_endpoints in ([], expected)
    if len(endpoints) * len(host) <= sum(len(row.host) for row in endpoints) - 4:
        assert told.node_endpoints == expected
    told.node_endpoints = []
    assert told == fetched([], bytes(100))


def test_fields_beside_the_endpoints_stay() -> None:
    content = fetched([NodeEndpoint(1, "kafka", 1)]).encode(VERSION)
    at = len(fetched([]).encode(VERSION)) - 1
    fields = bytearray(b"\x02" + content[at + 1 :] + b"\x09\x01\x55")
    rewrite_fields(memoryview(fields), lambda node: ("elsewhere", 2))
    told = FetchResponse.decode(content[:at] + fields, VERSION)
    assert told.node_endpoints == []
    assert fields.endswith(b"\x09\x01\x55")
    none = bytearray(b"\0")
    rewrite_fields(memoryview(none), lambda node: ("elsewhere", 2))
    assert none == b"\0"
    with pytest.raises(DecodeError, match="malformed node endpoints"):
        rewrite_fields(memoryview(bytearray(b"\x01\x00\x02\x05\x05")), lambda node: ("elsewhere", 2))


# -- the way to them


def random_response(rng: random.Random) -> FetchResponse:
    def row(index: int) -> PartitionData:
        aborted = rng.choice((None, 0, 1, 3, 200))
        return PartitionData(
            index,
            rng.choice((0, 6)),
            diverging_epoch=rng.choice((None, EpochEndOffset(1, 2))),
            current_leader=rng.choice((None, LeaderIdAndEpoch(1, 2))),
            aborted_transactions=None if aborted is None else [AbortedTransaction(1, 2)] * aborted,
            records=rng.choice((None, b"", rng.randbytes(100), LIKE_ENDPOINTS * 20, bytes(20_000))),
        )

    topics = [
        FetchableTopicResponse(partitions=[row(index) for index in range(rng.randrange(4))])
        for _ in range(rng.randrange(4))
    ]
    endpoints = random_endpoints(rng) if rng.random() < 0.5 else []
    return FetchResponse(responses=topics, node_endpoints=endpoints)


def walk_through(data: bytes, size: int, rng: random.Random, piece: int) -> int:
    """Let a response come in pieces of up to so many bytes. Return where its own tagged fields begin."""
    walk = FetchWalk(size)
    passed = have = 0
    while not walk.is_at_end:
        if have == len(data):
            raise EOFError
        have = min(have + rng.randint(1, piece), len(data))
        if have <= passed:
            continue
        position, more = walk.advance(memoryview(data)[passed:have], 0)
        assert more == 0 or position == have - passed
        passed += position + more
        assert walk.left == size - passed
    return passed


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("piece", [1, 100, 10_000])
def test_a_response_is_walked_through_to_its_own_fields(seed: int, piece: int) -> None:
    rng = random.Random(seed)
    response = random_response(rng)
    data = frame(response)
    told, response.node_endpoints = response.node_endpoints, []
    at = walk_through(data + b"the next one" * 100, len(data), rng, piece)
    assert at == len(frame(response)) - 1
    assert (data[at] != 0) == bool(told)


@pytest.mark.parametrize("seed", range(300))
def test_a_malformed_response_ends_the_walk(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(frame(random_response(rng)))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(8, len(data))] = rng.choice((0, 1, 0x7F, 0xFF))
    size = len(data)
    with contextlib.suppress(DecodeError, EOFError):
        assert 0 < walk_through(bytes(data), size, rng, 500) < size


# -- through a proxy


@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
@pytest.mark.parametrize("pipe_bytes", [4096, 300_000])
@simulated
async def test_they_pass_a_proxy_rewritten(size: int, pipe_bytes: int) -> None:
    network = MemoryNetwork()
    upstream = ScriptedBroker(network.listen("kafka", 1000))
    told = [MetadataResponseBroker(1, "kafka", 1000)]
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
            assert (HOST, PORT + 2) in proxy.sockets, "a node that no response had shown before"
            produced = await client.call(ProduceRequest(acks=1), 11, ProduceResponse)
            assert produced.node_endpoints == [ProduceEndpoint(3, HOST, PORT + 3)]
            assert (HOST, PORT + 3) in proxy.sockets
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [1000, 20_000, 100_000])
@pytest.mark.parametrize("pipe_bytes", [4096, 300_000])
@simulated
async def test_records_that_look_like_endpoints_pass_unchanged(size: int, pipe_bytes: int) -> None:
    network = MemoryNetwork()
    upstream = ScriptedBroker(network.listen("kafka", 1000))
    told = [MetadataResponseBroker(1, "kafka", 1000)]
    upstream.on(MetadataRequest, lambda request, version: MetadataResponse(brokers=told))
    records = bytes(size) + LIKE_ENDPOINTS
    upstream.on(FetchRequest, lambda request, version: fetched([], records))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.serve)
        async with SimProxy(network.connect, [("kafka", 1000)], pipe_bytes_max=pipe_bytes) as proxy:
            client = proxy.connect()
            response = await client.call(FetchRequest(), VERSION, FetchResponse)
            assert response == fetched([], records)
            assert proxy.proxy.upstream.nodes[1].host == "kafka"
        nursery.cancel_scope.cancel()
