"""Framing and order of a connection. One with a misbehaving peer is closed, and all others are served."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
import trio
import trio.testing

from oncelog.broker.log.truncation import truncate_to
from oncelog.broker.net.server import SHARED_BUFFER_BYTES
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, fetch, fetch_request, produce, produce_request, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated


async def still_serves(broker: SimBroker) -> None:
    response = await broker.connect().call(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
    assert response.error_code == 0


async def is_closed(client: SimClient) -> bool:
    try:
        await client.receive_frame()
    except ConnectionEndedError:
        return True
    return False


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 8, 0, 2, 1),
        struct.pack(">ihhi", 8, 1, 99, 1),
        struct.pack(">ihhi", 17_000_000, 3, 9, 1),
        struct.pack(">ihhih", 10, 3, 1, 1, -2),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    ],
    ids=["negative", "oversized", "empty", "short", "unknown-key", "old-version", "new-version", "large-metadata",
         "client-id", "huge-array", "http", "tls"],
)  # fmt: skip
def test_a_broken_frame_closes_that_connection_only(sent: bytes) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            other = broker.connect()
            await create_topic(other, "t")
            bad = broker.connect()
            await bad.send_bytes(sent)
            assert await is_closed(bad)
            assert (await produce(other, "t")).error_code == 0
            await still_serves(broker)

    run()


@simulated
async def test_a_request_may_arrive_byte_by_byte_and_many_may_arrive_at_once() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        for _ in range(3):
            await client.send(produce_request("t", batch()), 9)
        for expected in range(3):
            response = await client.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].base_offset == expected
        header = struct.pack(">hhih", 18, 0, 77, -1)
        for byte in struct.pack(">i", len(header)) + header:
            await client.send_bytes(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        frame = await client.receive_frame()
        assert struct.unpack_from(">ih", frame) == (77, 0)


@pytest.mark.parametrize("size", [SHARED_BUFFER_BYTES - 200, SHARED_BUFFER_BYTES + 1, 3_000_000])
def test_frames_around_and_above_the_shared_buffer(size: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config={"message.max.bytes": "10000000"}) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            big = batch([record(None, bytes(size))])
            assert (await produce(client, "t", big)).base_offset == 0
            assert (await produce(client, "t")).base_offset == 1
            found = await read_all(client, "t")
            assert [len(one.payload) > size for one in found] == [True, False]

    run()


@simulated
async def test_responses_keep_the_order_of_requests_around_a_delayed_fetch() -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await client.send(produce_request("t", batch()), 9)
        await trio.testing.wait_all_tasks_blocked()
        assert (await produce(other, "t")).base_offset == 0
        row = (await client.receive(FetchResponse, 12)).responses[0].partitions[0]
        assert row.high_watermark == 1
        response = await client.receive(ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].base_offset == 1


@pytest.mark.slow
@simulated
async def test_a_peer_with_thousands_of_requests_at_once_does_not_keep_others_waiting() -> None:
    async with SimBroker(pipe_bytes_max=16 * 1024 * 1024) as broker:
        busy, other = broker.connect(), broker.connect()
        await still_serves(broker)
        frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        count = SHARED_BUFFER_BYTES // len(frame)
        await busy.send_bytes(frame * count)
        for _ in range(3):
            await other.call(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
        unread = busy.unread()
        await trio.testing.wait_all_tasks_blocked()
        assert unread < busy.unread() / 2


@simulated
async def test_a_half_closed_peer_still_gets_its_responses() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await client.send(produce_request("t", batch()), 9)
        client.transport.end_sending()
        response = await client.receive(ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert await is_closed(client)


@simulated
async def test_a_peer_that_never_reads_holds_little_and_is_closed_when_idle() -> None:
    async with SimBroker(config={"connections.max.idle.ms": "5000"}, pipe_bytes_max=4096) as broker:
        slow, other = broker.connect(), broker.connect()
        await create_topic(other, "t")
        for _ in range(50):
            await produce(other, "t", batch([record(None, bytes(1000))]))
        with trio.move_on_after(1):
            for _ in range(100):
                await slow.send(fetch_request("t", 0), 12)
        held = sum(len(connection.writer.out) for connection in broker.server_connections())
        assert held < 10_000
        assert (await fetch(other, "t", 0)).high_watermark == 50
        await trio.sleep(20)
        assert broker.server_connections() == []


@simulated
async def test_a_reader_whose_records_are_truncated_is_closed() -> None:
    """The rest of its response would be other bytes than it was told."""
    async with SimBroker(pipe_bytes_max=4096) as broker:
        slow, other = broker.connect(), broker.connect()
        await create_topic(other, "t")
        for _ in range(4):
            await produce(other, "t", batch([record(None, bytes(900_000))]))
        await slow.send(fetch_request("t", 0, max_bytes=4_000_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        truncate_to(broker.node.cluster.leader_partition("t", 0).log, 2)
        assert await is_closed(slow)
        assert (await fetch(other, "t", 0)).high_watermark == 2


@simulated
async def test_limits_on_connections() -> None:
    async with SimBroker(config={"max.connections.per.ip": "2"}) as broker:
        first, second = broker.connect(), broker.connect()
        for client in (first, second):
            await client.call(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
        third = broker.connect()
        assert await is_closed(third)
        second.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        await still_serves(broker)


@simulated
async def test_an_address_may_have_a_limit_of_its_own() -> None:
    config = {"max.connections.per.ip": "5", "max.connections.per.ip.overrides": "client:1"}
    async with SimBroker(config=config) as broker:
        first, second = broker.connect(), broker.connect()
        await first.call(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
        assert await is_closed(second)


@simulated
async def test_unfinished_frames_share_a_budget() -> None:
    limits = {"queued.max.request.bytes": "2000000", "socket.request.max.bytes": "1500000"}
    async with SimBroker(config=limits) as broker:
        stalled = [broker.connect() for _ in range(4)]
        for client in stalled:
            await client.send_bytes(struct.pack(">i", 1_400_000) + bytes(100))
        await trio.testing.wait_all_tasks_blocked()
        assert broker.frame_bytes_reserved() <= 2_000_000 + 1_400_004
        await still_serves(broker)
        for client in stalled[:2]:
            client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert broker.frame_bytes_reserved() == 2 * 1_400_004


@simulated
async def test_an_unsupported_api_versions_request_gets_a_response_in_version_0() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await client.send_frame(struct.pack(">hhih", 18, 99, 7, -1))
        assert (
            await client.receive_frame()
        ).hex() == "00000007" + "0023" + "00000001" + "0012" + "0000" + "0005"


@pytest.mark.parametrize("count", [100, 2000])
def test_a_producer_that_never_reads_is_closed_when_idle(count: int) -> None:
    """Its responses wait for the disk and then for the peer; more of them than may wait, or fewer."""

    @simulated
    async def run() -> None:
        config = {"connections.max.idle.ms": "5000", "log.flush.interval.messages": "1"}
        async with SimBroker(config=config, pipe_bytes_max=1024) as broker:
            slow, other = broker.connect(), broker.connect()
            await create_topic(other, "t")
            with trio.move_on_after(60), suppress(trio.ClosedResourceError, OSError):
                for _ in range(count):
                    await slow.send(produce_request("t", batch()), 9)
            assert (await produce(broker.connect(), "t")).error_code == 0
            await trio.sleep(60)
            assert broker.server_connections() == []

    run()


@pytest.mark.parametrize("ends", ["lost", "closed"])
def test_records_of_a_lost_producer_are_flushed_and_visible_to_others(ends: str) -> None:
    """It disconnects while its responses wait for the disk. None of its batches is cut off."""

    @simulated
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "t", 2)
            broker.files.latency_s = 5
            for partition in (0, 1, 0):
                await client.send(produce_request("t", batch(), partition), 9)
            await trio.sleep(1)
            if ends == "lost":
                client.transport.break_off()
            else:
                await client.send_bytes(struct.pack(">i", -1))
            await trio.testing.wait_all_tasks_blocked()
            # The responses that are owed to one that broke the protocol are sent before it is closed.
            assert len(broker.server_connections()) == (1 if ends == "lost" else 2)
            for partition, count in ((0, 2), (1, 1)):
                row = await fetch(other, "t", count - 1, partition, max_wait_ms=30_000)
                assert row.high_watermark == count
            assert broker.files.held == 0

    run()


@simulated
async def test_a_consumer_that_waits_longer_than_the_idle_time_is_not_idle() -> None:
    async with SimBroker(config={"connections.max.idle.ms": "5000"}) as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        assert (await client.receive(FetchResponse, 12)).error_code == 0


@simulated
async def test_to_announce_a_large_frame_takes_no_memory() -> None:
    async with SimBroker() as broker:
        clients = [broker.connect() for _ in range(100)]
        await still_serves(broker)
        tracemalloc.start()
        try:
            for client in clients:
                await client.send_bytes(struct.pack(">ihhi", 100_000_000, 0, 9, 1) + bytes(1000))
            await trio.testing.wait_all_tasks_blocked()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert broker.frame_bytes_reserved() == 100 * 100_000_004
        assert held < 100 * 64 * 1024
