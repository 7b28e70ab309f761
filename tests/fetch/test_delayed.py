"""Delayed fetches that the appending connection completes: before the Produce's response, once, and whole."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.fetch.delayed_fetches import COMPLETED_BY_APPEND_MAX
from oncelog.broker.fetch.template import ResponseTemplate
from oncelog.broker.seams.memory_files import MemoryFile
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import FetchResponse
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.sim_network import MemoryTransport
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import V2, Link, TransactionalProducer


async def wait_at(client: SimClient, offset: int = 0) -> None:
    await client.send(fetch_request("t", offset, max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()


async def row_of(client: SimClient) -> Any:
    return (await client.receive(FetchResponse, 12)).responses[0].partitions[0]


def test_a_few_are_answered_before_the_produce_and_the_others_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    senders: list[str] = []
    send = MemoryTransport.send

    def record_peer(self: MemoryTransport, data: bytes, *, more: bool = False) -> int:
        if self.peer.startswith("client"):
            senders.append(self.peer)
        return send(self, data, more=more)

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            writer = broker.connect()
            await create_topic(writer, "t")
            clients = [broker.connect() for _ in range(COMPLETED_BY_APPEND_MAX + 2)]
            for client in clients:
                await wait_at(client)
            monkeypatch.setattr(MemoryTransport, "send", record_peer)
            await produce(writer, "t")
            rows = [await row_of(client) for client in clients]
            assert [row.high_watermark for row in rows] == [1] * len(clients)

    run()
    first = [f"client:{number + 2}" for number in range(COMPLETED_BY_APPEND_MAX)]
    assert senders[: COMPLETED_BY_APPEND_MAX + 1] == [*first, "client:1"]
    assert len(senders) == COMPLETED_BY_APPEND_MAX + 3


@simulated
async def test_what_does_not_fit_follows_before_the_next_answer() -> None:
    async with SimBroker(pipe_bytes_max=1000) as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        await client.send(ApiVersionsRequest("test", "1"), 3)
        sent = batch([record(None, bytes(5000))])
        await produce(writer, "t", sent)
        assert len((await row_of(client)).records) == len(sent)
        assert (await client.receive(ApiVersionsResponse, 3)).error_code == 0


@simulated
async def test_a_lost_consumer_does_not_hurt_the_producer() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        client.transport.break_off()
        assert (await produce(writer, "t")).error_code == 0
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.server_connections()) == 1


def test_an_error_on_the_way_is_the_consumers_and_not_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            broker.node.host.fail_on_internal_errors = False
            client, writer = broker.connect(), broker.connect()
            await create_topic(writer, "t")
            await wait_at(client)
            with monkeypatch.context() as patched:
                patched.setattr(ResponseTemplate, "put", fail)
                assert (await produce(writer, "t")).error_code == 0
            assert (await client.receive(FetchResponse, 12)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await trio.testing.wait_all_tasks_blocked()
            assert client.unread() == 0
            await wait_at(client, 1)
            await produce(writer, "t")
            assert (await row_of(client)).high_watermark == 2

    run()


@simulated
async def test_a_connection_waits_anew_after_such_an_answer() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        for offset in range(5):
            await wait_at(client, offset)
            await produce(writer, "t")
            assert (await row_of(client)).high_watermark == offset + 1
            assert client.unread() == 0


def _big() -> bytes:
    return batch([record(None, bytes(20_000))])


@pytest.mark.parametrize(
    ("sent", "limits", "reads"),
    [
        ([batch()], {}, 0),
        ([batch()], {"isolation_level": 1}, 0),
        ([batch(3)], {"max_bytes": 10}, 1),  # cut to the first batch, whole
        ([batch(), batch(5)], {"min_bytes": len(batch()) + 1}, 1),  # the second one ends the wait
        ([_big()], {}, 0),  # sent as a range of the file
    ],
    ids=["one batch", "committed", "above its limit", "two batches", "large"],
)
def test_it_is_answered_as_a_fetch_that_comes_after(
    sent: list[bytes], limits: dict[str, int], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One small batch goes out as it was appended; the file is read for whatever else ends a wait."""
    read = []
    pread_cached = MemoryFile.pread_cached

    def counted(self: MemoryFile, size: int, offset: int) -> bytes | None:
        read.append(size)
        return pread_cached(self, size, offset)

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, writer = broker.connect(), broker.connect()
            await create_topic(writer, "t")
            await produce(writer, "t")
            await client.send(fetch_request("t", 1, max_wait_ms=60_000, **limits), 12)
            await trio.testing.wait_all_tasks_blocked()
            monkeypatch.setattr(MemoryFile, "pread_cached", counted)
            for one in sent:
                await produce(writer, "t", one)
            answered = await row_of(client)
            assert len(read) == reads
            later = fetch_request("t", 1, **limits)
            assert answered == (await client.call(later, 12, FetchResponse)).responses[0].partitions[0]

    run()


@simulated
async def test_batches_that_come_together_go_out_together() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await produce(writer, "t")
        await wait_at(client, 1)
        for _ in range(3):
            await writer.send(produce_request("t", batch()), 9)
        row = await row_of(client)
        assert (row.high_watermark, len(row.records)) == (4, 3 * len(batch()))


@simulated
async def test_an_open_transaction_keeps_a_batch_from_those_who_read_committed() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        producer = TransactionalProducer(Link(broker.connect()), "x", V2)
        await producer.init()
        await client.send(fetch_request("t", 0, max_wait_ms=5_000, isolation_level=1), 12)
        await trio.testing.wait_all_tasks_blocked()
        await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        await produce(writer, "t")
        row = await row_of(client)
        assert (row.high_watermark, row.last_stable_offset, len(row.records)) == (2, 0, 0)


@simulated
async def test_its_time_is_over_before_all_that_it_asked_for_is_there() -> None:
    """What is there then is sent (Kafka: ``DelayedFetch.onComplete`` reads anew)."""
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=5_000, min_bytes=100_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        await produce(writer, "t")
        row = await row_of(client)
        assert row.high_watermark == 1
        assert len(row.records) == len(batch())


@simulated
async def test_records_that_come_while_answers_before_it_are_being_sent() -> None:
    async with SimBroker(pipe_bytes_max=1000) as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await produce(writer, "t", batch([record(None, bytes(5000))]))
        await client.send(fetch_request("t", 0), 12)
        await wait_at(client, 1)
        began = trio.current_time()
        await produce(writer, "t")
        assert (await row_of(client)).high_watermark == 1
        assert (await row_of(client)).high_watermark == 2
        assert trio.current_time() == began


@simulated
async def test_the_peer_is_lost_while_answers_before_it_are_being_sent() -> None:
    async with SimBroker(pipe_bytes_max=1000) as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await produce(writer, "t", batch([record(None, bytes(20_000))]))
        await client.send(fetch_request("t", 0), 12)
        await client.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=100_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.files.held > 0
        client.transport.break_off()
        await trio.testing.wait_all_tasks_blocked()
        assert broker.files.held == 0
        assert not broker.node.cluster.leader_partition("t", 0).log.waiters


@simulated
async def test_one_that_was_woken_before_and_waits_again_is_answered_once() -> None:
    """A transaction that times out wakes it, but another one that is open still holds back what it may read."""
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producers = []
        for name, timeout_ms in (("long", 600_000), ("short", 20_000)):
            producer = TransactionalProducer(Link(broker.connect()), name, V2, timeout_ms=timeout_ms)
            await producer.init()
            await producer.send("t", 0, [b"value"], broker.clock.now_ms())
            producers.append(producer)
        await client.send(fetch_request("t", 0, max_wait_ms=300_000, isolation_level=1), 12)
        await trio.sleep(60)
        assert client.unread() == 0
        await producers[0].end(commit=True)
        assert (await row_of(client)).last_stable_offset == 4
        await trio.testing.wait_all_tasks_blocked()
        assert client.unread() == 0
