"""Moving a broker's time: what comes due is done in order and at its time when it returns, and nothing else is."""

from __future__ import annotations

import errno

import pytest
import trio

from oncelog.broker.control.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotRunningError,
    WaitTimeoutError,
)
from oncelog.broker.control.operations.clock import abort_transaction
from oncelog.broker.seams.clock import MovableClock
from oncelog.wire.errors import ErrorCode
from tests.common.batches import batch, record
from tests.control.time_moves import DAY_S, HOUR_S, advance, move_of, told
from tests.harness.classic_members import SESSION_MS, SimMember, coordinated
from tests.harness.clocks import VirtualWall
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import EARLIEST, create_topic, list_offset, produce
from tests.harness.sim_broker import EPOCH_MS, SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
    Versions,
)
from tests.sim.disk import Fault


class CountingClock(MovableClock):
    """Counts the stops."""

    def __init__(self) -> None:
        super().__init__(VirtualWall(EPOCH_MS).now_ms)
        self.stops: list[float] = []

    def advance_to(self, deadline: float) -> None:
        self.stops.append(deadline)
        super().advance_to(deadline)


# --- transactions


@pytest.mark.parametrize("versions", [CLASSIC, V2], ids=["classic", "v2"])
@pytest.mark.parametrize("flush", [False, True])
def test_a_transaction_times_out_and_its_producer_is_fenced(versions: Versions, flush: bool) -> None:
    @simulated
    async def run() -> None:
        config = {"log.flush.interval.messages": "1"} if flush else {}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            producer = TransactionalProducer(Link(broker.connect()), "pay-7", versions, timeout_ms=30_000)
            await producer.init()
            begun_s = (broker.clock.now_ms() - EPOCH_MS) / 1000
            await producer.send("t", 0, [b"value"], broker.clock.now_ms())
            [happened] = await advance(broker, 31)
            assert str(happened) == (
                f"transaction pay-7 (producer id {producer.producer_id}, epoch {producer.epoch}): timed out, aborted"
            )
            # Not only at the next of Kafka's checks, every 10 s.
            assert told([happened])[0][0] == pytest.approx(begun_s + 30, abs=0.01)
            reader = CommittedReader("t", 0)
            assert await reader.poll(client)
            assert reader.last_stable_offset == reader.high_watermark == 2  # the marker is there
            with pytest.raises(TransactionEndedError) as refused:
                await producer.end(commit=True)
            # With v2 it might be a repeated request of an earlier epoch; its next record says that it is fenced.
            assert refused.value.code is (
                ErrorCode.INVALID_TXN_STATE if versions is V2 else ErrorCode.PRODUCER_FENCED
            )
            with pytest.raises(TransactionEndedError) as refused:
                await producer.send("t", 0, [b"value"], broker.clock.now_ms())
            assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            assert not await advance(broker, HOUR_S)

    run()


@simulated
async def test_one_transaction_expires_alone() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producers = [TransactionalProducer(Link(broker.connect()), name) for name in ("a", "b")]
        for producer in producers:
            await producer.init()
            await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        before_ms = broker.clock.now_ms()
        move = move_of(broker)
        await move.settle(10, lambda: abort_transaction((broker.node,), "a"))
        assert [one.about["transactional_id"] for one in move.happened] == ["a"]
        assert broker.clock.now_ms() == before_ms
        with pytest.raises(TransactionEndedError):
            await producers[0].end(commit=True)
        await producers[1].end(commit=True)
        with pytest.raises(
            InvalidArgumentError, match=r"b has no open transaction: its state is CompleteCommit"
        ):
            await move_of(broker).settle(10, lambda: abort_transaction((broker.node,), "b"))
        with pytest.raises(NotFoundError, match=r"no transactional id 'c'.*a, b"):
            await move_of(broker).settle(10, lambda: abort_transaction((broker.node,), "c"))


# --- what periodic tasks find


@simulated
async def test_retention_deletes_and_time_does_not_stop_for_it() -> None:
    clock = CountingClock()
    broker = SimBroker(config={"log.segment.delete.delay.ms": "60000"})
    broker.clock = clock
    async with broker:
        client = broker.connect()
        await create_topic(client, "t", 2, {"segment.ms": str(3600_000)})
        for _ in range(2):
            await produce(client, "t", batch(base_timestamp=clock.now_ms()))
            await advance(broker, HOUR_S + 1)
        clock.stops.clear()
        happened = await advance(broker, 7 * DAY_S)
        assert [str(one) for one in happened] == ["topic t partition 0: 2 segments deleted by retention"]
        assert len(clock.stops) == 1
        assert (await list_offset(client, "t", EARLIEST)).offset == 2
        assert [name for name in broker.files.listdir("/data/t-0") if name.endswith(".deleted")]
        await advance(broker, 60)
        assert not [name for name in broker.files.listdir("/data/t-0") if name.endswith(".deleted")]
        await produce(client, "t", batch(base_timestamp=clock.now_ms() - 8 * DAY_S * 1000))
        assert [str(one) for one in await advance(broker, 0)] == [
            "topic t partition 0: 1 segment deleted by retention"
        ]


@simulated
async def test_offsets_of_an_empty_group_expire_and_the_group_is_gone() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 3)
        await commit(client, "billing", {"t": {0: 5, 1: 6}})
        assert not await advance(broker, 7 * DAY_S - 1)
        await commit(client, "shipping", {"t": {0: 5}})
        assert [str(one) for one in await advance(broker, 1)] == [
            "group billing: 2 offsets expired",
            "group billing: removed, since it has neither members nor offsets",
        ]
        assert not await fetch_offsets(client, "billing")
        assert await fetch_offsets(client, "shipping") == {("t", 0): 5}
        assert "group shipping: 1 offset expired" in [str(one) for one in await advance(broker, 7 * DAY_S)]


@simulated
async def test_offsets_live_for_seven_days_after_the_last_member_has_gone() -> None:
    """The member's session ends on the way; only then do the seven days begin."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t")
        member = SimMember(broker)
        await member.found()
        await commit(
            client,
            "g",
            {"t": {0: 5}},
            member_id=member.member_id,
            generation_id_or_member_epoch=member.generation,
        )
        member.client.transport.close()
        assert [one.what for one in await advance(broker, 7 * DAY_S)] == ["member dropped"]
        assert [one.what for one in await advance(broker, SESSION_MS / 1000)] == [
            "offsets expired",
            "group removed",
        ]


@simulated
async def test_transactional_ids_and_producers_expire() -> None:
    async with SimBroker(config={"producer.id.expiration.ms": "3600000"}) as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(broker.connect()), "pay-7")
        await producer.init()
        await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        await producer.end(commit=True)
        assert [str(one) for one in await advance(broker, HOUR_S + 1)] == [
            f"topic t partition 0: producer id {producer.producer_id} expired"
        ]
        texts = [str(one) for one in await advance(broker, 7 * DAY_S)]
        assert "transactional id pay-7: expired" in texts


@simulated
async def test_compaction() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        config = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.compaction.lag.ms": "7200000"}
        await create_topic(client, "t", configs=config)
        happened = []
        for value in (b"1", b"2", b"3"):
            await produce(client, "t", batch([record(b"key", value)], base_timestamp=broker.clock.now_ms()))
            happened += await advance(broker, HOUR_S + 1)
        assert [str(one) for one in happened] == [
            "topic t partition 0: compacted from offset 0 to 1",
        ]


# --- order, and its end


@simulated
async def test_all_happens_in_order_at_its_time() -> None:
    clock = CountingClock()
    broker = SimBroker()
    broker.clock = clock
    async with broker:
        client = await coordinated(broker)
        await create_topic(client, "t")
        await commit(client, "empty", {"t": {0: 1}})
        sessions = {"a": 40_000, "b": 20_000, "c": 30_000}
        for group, session_ms in sessions.items():
            member = SimMember(broker, group)
            member.session_ms = session_ms
            await member.found()
        producer = TransactionalProducer(Link(broker.connect()), "id", timeout_ms=25_000)
        await producer.init()
        await producer.send("t", 0, [b"value"], clock.now_ms())
        began = trio.current_time()
        clock.stops.clear()
        happened = await advance(broker, 7 * DAY_S, keep_members=False)
        assert [(round((one.at_ms - EPOCH_MS) / 1000), one.what) for one in happened[:4]] == [
            (20, "member dropped"),
            (25, "transaction timed out"),
            (30, "member dropped"),
            (40, "member dropped"),
        ]
        rest = happened[4:]
        kinds = [one.what for one in rest]
        assert {one.at_ms for one in rest} == {clock.now_ms()}
        assert kinds.count("group removed") == 4
        assert kinds.index("offsets expired") == kinds.index("group removed") - 1
        assert "producer expired" in kinds
        assert trio.current_time() == began, "it waited"
        assert len(clock.stops) < 10


@pytest.mark.parametrize("frozen", [False, True])
def test_time_is_moved_by_just_that_much_and_then_runs_or_stands_as_before(frozen: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            if frozen:
                broker.clock.freeze()
            before_ms = broker.clock.now_ms()
            await advance(broker, 12.345)
            assert broker.clock.now_ms() - before_ms == 12_345
            assert broker.clock.is_frozen is frozen
            await trio.sleep(5)
            assert broker.clock.now_ms() - before_ms == (12_345 if frozen else 17_345)

    run()


@simulated
async def test_an_action_that_fails_is_not_repeated_for_seven_days() -> None:
    clock = CountingClock()
    broker = SimBroker()
    broker.clock = clock
    async with broker:
        await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        member.client.transport.close()
        [context] = broker.node.groups.runtime.loaded.values()
        full = Fault("write", errno.ENOSPC, lambda path: "__consumer" in path and path.endswith(".log"))
        broker.files.faults.append(full)
        clock.stops.clear()
        await advance(broker, 7 * DAY_S)
        assert len(clock.stops) < 5
        assert context.shard.groups["g"].is_empty()
        broker.files.faults.remove(full)
        assert [one.what for one in await advance(broker, 0)] == []
        assert [one.what for one in await advance(broker, 600)] == ["group removed"]


@simulated
async def test_the_broker_ends_meanwhile() -> None:
    async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(broker.connect()), "id")
        await producer.init()
        await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        ended: list[NotRunningError] = []

        async def advance_until_its_end() -> None:
            try:
                await advance(broker, DAY_S)
            except NotRunningError as error:
                ended.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(advance_until_its_end)
            nursery.start_soon(broker.crash, "process")
        assert len(ended) == 1
        assert not broker.clock.is_frozen


@simulated
async def test_what_takes_too_long_is_named() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        never = trio.Event()

        async def stuck() -> None:
            with broker.node.logs.background.running("compaction"):
                await never.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stuck)
            before_ms = broker.clock.now_ms()
            with pytest.raises(
                WaitTimeoutError,
                match=r"not done after 10 s of real time: compaction; time was moved by 0 of 86400 s",
            ):
                await advance(broker, DAY_S)
            assert broker.clock.now_ms() - before_ms == 0
            assert not broker.clock.is_frozen
            never.set()
        assert not await advance(broker, DAY_S)


@simulated
async def test_a_marker_that_cannot_be_written_is_named() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(broker.connect()), "pay-7", timeout_ms=60_000)
        await producer.init()
        await producer.send("t", 0, [b"value"], broker.clock.now_ms())
        full = Fault("write", errno.ENOSPC, lambda path: "/t-0/" in path and path.endswith(".log"))
        broker.files.faults.append(full)
        with pytest.raises(
            WaitTimeoutError, match=r"end of transaction pay-7; time was moved by 60\.\d+ of 86400 s"
        ):
            await advance(broker, DAY_S)
        assert not broker.clock.is_frozen
        broker.files.faults.remove(full)
        reader = CommittedReader("t", 0)
        assert not await advance(broker, DAY_S)  # it was told before, and goes on by itself
        await trio.sleep(1)
        await reader.poll(client)
        assert (dict(reader.values), reader.last_stable_offset) == ({}, 2)
