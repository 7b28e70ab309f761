"""Long polls that the append they wait for answers itself: before the Produce's answer, once, and whole."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from broker.connection import WOKEN_FIRST_MAX, Connection
from compat_tests.batches import batch, record
from tests.sim.ask import create_topic, fetch_request, produce
from tests.sim.broker import SimBroker
from tests.sim.client import SimClient
from tests.sim.run import simulated
from tests.sim.transport import MemoryTransport
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.fetch import FetchResponse


async def park(client: SimClient, offset: int = 0) -> None:
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
            clients = [broker.connect() for _ in range(WOKEN_FIRST_MAX + 2)]
            for client in clients:
                await park(client)
            monkeypatch.setattr(MemoryTransport, "send", record_peer)
            await produce(writer, "t")
            rows = [await row_of(client) for client in clients]
            assert [row.high_watermark for row in rows] == [1] * len(clients)

    run()
    first = [f"client:{number + 2}" for number in range(WOKEN_FIRST_MAX)]
    assert senders[: WOKEN_FIRST_MAX + 1] == [*first, "client:1"]
    assert len(senders) == WOKEN_FIRST_MAX + 3


@simulated
async def test_what_does_not_fit_follows_before_the_next_answer() -> None:
    async with SimBroker(pipe_bytes_max=1000) as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await park(client)
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
        await park(client)
        client.transport.break_off()
        assert (await produce(writer, "t")).error_code == 0
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.server_connections()) == 1


def test_where_it_fails_the_fetch_is_answered_by_its_own_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []

    def fail(self: Connection, owed: object, answer: object) -> None:
        failed.append("once")
        raise RuntimeError("on purpose")

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, writer = broker.connect(), broker.connect()
            await create_topic(writer, "t")
            monkeypatch.setattr(Connection, "_send_parked", fail)
            await park(client)
            assert (await produce(writer, "t")).error_code == 0
            assert (await row_of(client)).high_watermark == 1
            await trio.testing.wait_all_tasks_blocked()
            assert client.unread() == 0

    run()
    assert failed == ["once"]


@simulated
async def test_a_connection_waits_anew_after_such_an_answer() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        for offset in range(5):
            await park(client, offset)
            await produce(writer, "t")
            assert (await row_of(client)).high_watermark == offset + 1
            assert client.unread() == 0
