"""Fetch: limits, delayed fetches, sessions. compat_tests/logs/test_diff_fetch.py compares responses with Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.common.batches import batch, read_batches, record
from tests.harness.requests import bytes_of, create_topic, fetch, fetch_request, produce, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated


@simulated
async def test_reads_from_any_offset_to_the_high_watermark() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        for count in (3, 1, 2):
            await produce(client, "a", batch(count))
        for offset in range(6):
            found = await read_all(client, "a", offset=offset)
            first = found[0]
            assert first.base_offset <= offset <= first.base_offset + first.last_offset_delta
            assert found[-1].base_offset + found[-1].last_offset_delta == 5
        row = await fetch(client, "a", 6)
        assert (row.error_code, bytes_of(row.records), row.high_watermark) == (0, b"", 6)


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_offset_outside_the_log(offset: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a")
            await produce(client, "a")
            row = await fetch(client, "a", offset)
            assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert row.high_watermark == -1

    run()


@simulated
async def test_max_bytes_limits_all_but_the_first_batch() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        one = batch([record(None, bytes(1000))])
        for _ in range(3):
            await produce(client, "a", one)
        row = await fetch(client, "a", 0, max_bytes=10)
        assert len(list(read_batches(bytes_of(row.records)))) == 1
        row = await fetch(client, "a", 0, max_bytes=2 * len(one) + 5)
        assert len(list(read_batches(bytes_of(row.records)))) == 2


@simulated
async def test_a_delayed_fetch_completes_with_min_bytes_or_at_its_deadline() -> None:
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(client, "a")
        one = batch([record(None, bytes(100))])
        await client.send(fetch_request("a", 0, max_wait_ms=10_000, min_bytes=2 * len(one)), 12)
        started = trio.current_time()
        await trio.sleep(1)
        await produce(writer, "a", one)
        await trio.sleep(1)
        await produce(writer, "a", one)
        row = (await client.receive(FetchResponse, 12)).responses[0].partitions[0]
        assert len(list(read_batches(bytes_of(row.records)))) == 2
        assert trio.current_time() - started == pytest.approx(2)
        await client.send(fetch_request("a", 2, max_wait_ms=500), 12)
        row = (await client.receive(FetchResponse, 12)).responses[0].partitions[0]
        assert bytes_of(row.records) == b""
        assert trio.current_time() - started == pytest.approx(2.5)


@simulated
async def test_a_delayed_fetch_on_a_deleted_topic_completes_with_an_error() -> None:
    from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(client, "a")
        await client.send(fetch_request("a", 0, max_wait_ms=10_000_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        await admin.call(DeleteTopicsRequest(topic_names=["a"]), 5, DeleteTopicsResponse)
        row = (await client.receive(FetchResponse, 12)).responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_leader_epochs_are_checked() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        for epoch, expected in ((0, 0), (-1, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            request = fetch_request("a", 0)
            request.topics[0].partitions[0].current_leader_epoch = epoch
            response = await client.call(request, 12, FetchResponse)
            assert response.responses[0].partitions[0].error_code == expected


class Session:
    """A consumer that uses a fetch session as the Java client does."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.id = 0
        self.epoch = 0

    async def call(self, offsets: dict[str, int], forget: tuple[str, ...] = (), version: int = 12) -> Any:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[
                FetchTopic(
                    name, partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)]
                )
                for name, offset in offsets.items()
            ],
            forgotten_topics_data=[ForgottenTopic(name, partitions=[0]) for name in forget],
        )
        response = await self.client.call(request, version, FetchResponse)
        if response.error_code == 0:
            self.id = response.session_id
            self.epoch += 1
        return response


def told(response: Any) -> list[str]:
    return [topic.topic for topic in response.responses]


@simulated
async def test_a_session_returns_changed_partitions_only() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        for name in ("a", "b", "c"):
            await create_topic(client, name)
        session = Session(client)
        assert told(await session.call({"a": 0, "b": 0, "c": 0})) == ["a", "b", "c"]
        assert session.id != 0
        assert told(await session.call({})) == []
        await produce(client, "b")
        assert told(await session.call({})) == ["b"]
        assert told(await session.call({"b": 1})) == []
        await produce(client, "a")
        await produce(client, "c")
        assert told(await session.call({}, forget=("a",))) == ["c"]


@simulated
async def test_session_errors() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        session = Session(client)
        await session.call({"a": 0})
        session.epoch += 1
        assert (await session.call({})).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch -= 1
        assert (await session.call({}, version=13)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.id += 1
        assert (await session.call({})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@simulated
async def test_the_session_cache_has_a_limit() -> None:
    async with SimBroker(config={"max.incremental.fetch.session.cache.slots": "2"}) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        sessions = [Session(client) for _ in range(3)]
        for session in sessions:
            await session.call({"a": 0})
        assert [session.id != 0 for session in sessions] == [True, True, False]
        await trio.sleep(121)
        await sessions[1].call({})
        late = Session(client)
        await late.call({"a": 0})
        assert late.id != 0
        assert (await sessions[0].call({})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@simulated
async def test_all_sessions_together_have_a_limit_of_partitions() -> None:
    async with SimBroker() as broker:
        broker.node.fetch_sessions.partitions_max = 4
        client = broker.connect()
        for name in "abcde":
            await create_topic(client, name)
        first, second, third = (Session(client) for _ in range(3))
        await first.call({"a": 0, "b": 0, "c": 0})
        assert len(told(await second.call({"a": 0, "b": 0}))) == 2
        assert (first.id != 0, second.id) == (True, 0)
        await third.call({"a": 0})
        assert third.id != 0
        # One that grows beyond the limit begins anew, without a session.
        assert (await third.call({"d": 0, "e": 0})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        await first.call({}, forget=("a", "b"))
        assert broker.node.fetch_sessions.partitions == 1
        # An unused session is evicted.
        await trio.sleep(121)
        late = Session(client)
        await late.call({"a": 0, "b": 0, "c": 0, "d": 0})
        assert (late.id != 0, broker.node.fetch_sessions.partitions) == (True, 4)
        assert (await first.call({})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
