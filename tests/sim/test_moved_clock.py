"""Deadlines that pass when a test moves broker time, and those that do not. No test waits, even in simulated time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import FetchResponse
from tests.common.batches import batch
from tests.harness.classic_members import SimMember, coordinated, describe
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import EARLIEST, FETCH_VERSION, create_topic, fetch_request, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
)

DAY_S = 24 * 3600


async def settle(broker: SimBroker, seconds: float) -> None:
    """Move broker time, and let tasks run whose deadline has passed."""
    broker.clock.advance(seconds)
    await trio.testing.wait_all_tasks_blocked()


@simulated
async def test_a_session_ends() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        before = trio.current_time()
        await settle(broker, member.session_ms / 1000 - 0.1)
        assert [row.member_id for row in (await describe(client)).members] == [member.member_id]
        await settle(broker, 0.1)
        assert (await describe(client)).group_state == "Empty"
        assert trio.current_time() == before


@simulated
async def test_a_rebalance_ends() -> None:
    async with SimBroker(config={"group.initial.rebalance.delay.ms": "60000"}) as broker:
        await coordinated(broker)
        member = SimMember(broker)
        member.session_ms = 300_000
        await member.join()
        await member.send_join()
        await settle(broker, 60)
        assert (await member.joined()).generation_id == 1


@simulated
async def test_committed_offsets_expire() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t")
        await commit(client, "g", {"t": {0: 5}})
        await settle(broker, 6 * DAY_S)
        assert await fetch_offsets(client, "g") == {("t", 0): 5}
        await settle(broker, DAY_S + 600)
        assert not await fetch_offsets(client, "g")


@simulated
async def test_retention_deletes() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"segment.ms": str(3600_000)})
        for _ in range(2):
            await produce(client, "t", batch(base_timestamp=broker.clock.now_ms()))
            await settle(broker, 3601)
        await settle(broker, 7 * DAY_S)
        assert (await list_offset(client, "t", EARLIEST)).offset == 2
        await settle(broker, 61)  # file.delete.delay.ms
        assert not [name for name in broker.files.listdir("/data/t-0") if name.startswith("0" * 20)]


@simulated
async def test_a_transaction_times_out() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(broker.connect()), "id", CLASSIC)
        await producer.init()
        await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        await settle(broker, 3600)
        reader = CommittedReader("t", 0)
        assert await reader.poll(client)
        assert reader.last_stable_offset == reader.high_watermark
        assert not reader.values
        with pytest.raises(TransactionEndedError) as refused:
            await producer.end(commit=True)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED


@simulated
async def test_a_fetch_and_an_idle_connection_live_in_real_time() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=5_000), FETCH_VERSION)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await settle(broker, 30 * DAY_S)
        await client.receive(FetchResponse, FETCH_VERSION)
        assert trio.current_time() - began == 5
        assert len(broker.server_connections()) == 1
