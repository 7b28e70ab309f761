"""Moving a broker's time: what comes due is done in order and at its time when it returns, and nothing else is."""

from __future__ import annotations

import errno

import pytest
import trio

from compat_tests.batches import batch, record
from oncelog.broker.control.clock import abort_transaction, expire_session
from oncelog.broker.control.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotRunningError,
    WaitTimeoutError,
)
from oncelog.broker.control.moving_time import TimeMove
from oncelog.broker.control.types import Occurrence
from oncelog.broker.seams.clock import MovableClock
from oncelog.wire.errors import ErrorCode
from tests.harness.classic_members import SESSION_MS, SimMember, coordinated, describe
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

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 24 * 3600


def move_of(broker: SimBroker) -> TimeMove:
    node = broker.node
    return TimeMove(node, broker.clock, lambda: not broker.is_dead and broker.node is node)


async def advance(broker: SimBroker, seconds: float, *, keep_members: bool = True) -> list[Occurrence]:
    move = move_of(broker)
    await move.advance(seconds, keep_members=keep_members, timeout_s=10)
    return move.happened


def told(happened: list[Occurrence]) -> list[tuple[float, str]]:
    """Seconds since the beginning of the simulation, and what happened."""
    return [((one.at_ms - EPOCH_MS) / 1000, str(one)) for one in happened]


class CountingClock(MovableClock):
    """Counts the stops."""

    def __init__(self) -> None:
        super().__init__(VirtualWall(EPOCH_MS).now_ms)
        self.stops: list[float] = []

    def advance_to(self, deadline: float) -> None:
        self.stops.append(deadline)
        super().advance_to(deadline)


# --- members


@simulated
async def test_a_dead_member_goes_and_a_live_one_stays() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        dead, alive = SimMember(broker, "billing"), SimMember(broker, "shipping")
        await dead.found()
        await alive.found()
        dead.client.transport.close()
        happened = await advance(broker, MINUTE_S)
        assert (await describe(client, "billing")).group_state == "Empty"
        happened += await advance(broker, HOUR_S - MINUTE_S)
        assert told(happened) == [
            (SESSION_MS / 1000, f"member {dead.member_id} of group billing: session expired"),
            (HOUR_S, "group billing: removed, since it has neither members nor offsets"),
        ]
        assert happened[0].what == "member dropped"
        assert happened[0].about == {
            "group": "billing",
            "member": dead.member_id,
            "reason": "session expired",
        }
        assert not await advance(broker, 7 * DAY_S)
        assert (await describe(client, "billing")).group_state == "Dead"
        assert (await describe(client, "shipping")).group_state == "Stable"
        assert await alive.heartbeat() is ErrorCode.NONE
        # It does not live for ever: only the jump was given to it.
        await trio.sleep(SESSION_MS / 1000 + 1)
        assert (await describe(client, "shipping")).group_state == "Empty"


@simulated
async def test_all_members_expire_on_demand() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        members = [SimMember(broker, name) for name in "ab"]
        for member in members:
            await member.found()
            await trio.sleep(1)
        happened = await advance(broker, SESSION_MS / 1000, keep_members=False)
        assert told(happened) == [
            (10, f"member {members[0].member_id} of group a: session expired"),
            (11, f"member {members[1].member_id} of group b: session expired"),
        ]
        assert (await describe(client, "a")).group_state == "Empty"


@simulated
async def test_a_live_member_stays_though_others_die_and_it_has_yet_to_rejoin() -> None:
    """Its client learns of the rebalance only with its next heartbeat, which it sends in real time."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        alive, dead = SimMember(broker), SimMember(broker)
        await alive.found()
        await dead.join()
        await dead.send_join()
        await trio.testing.wait_all_tasks_blocked()
        await alive.send_join()
        await alive.joined()
        await dead.joined()
        await dead.send_sync()
        await alive.sync({alive.member_id: b"1", dead.member_id: b"2"})
        await dead.synced()
        dead.client.transport.close()
        happened = await advance(broker, 7 * DAY_S)
        assert [str(one) for one in happened] == [f"member {dead.member_id} of group g: session expired"]
        group = await describe(client)
        assert (group.group_state, [row.member_id for row in group.members]) == (
            "PreparingRebalance",
            [alive.member_id],
        )
        assert await alive.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await alive.join()).generation_id == 3
        await alive.sync({alive.member_id: b"all"})
        assert (await describe(client)).group_state == "Stable"


@simulated
async def test_a_member_that_joins_is_awaited_while_its_connection_is_open() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        first, joining = SimMember(broker), SimMember(broker)
        await first.found()
        await joining.join()  # it has its member id, and has not joined with it
        await first.send_join()
        assert not await advance(broker, HOUR_S)
        assert (await describe(client)).group_state == "PreparingRebalance"
        joining.client.transport.close()
        happened = await advance(broker, HOUR_S)
        assert [(one.about["member"], one.about["reason"]) for one in happened] == [
            (joining.member_id, "did not join with its new member id in time")
        ]
        assert (await first.joined()).generation_id == 2


@simulated
async def test_the_first_rebalance_of_a_group_is_not_awaited_longer() -> None:
    async with SimBroker(config={"group.initial.rebalance.delay.ms": "3000"}) as broker:
        await coordinated(broker)
        member = SimMember(broker)
        await member.join()
        await member.send_join()
        await trio.testing.wait_all_tasks_blocked()
        assert told(await advance(broker, 5)) == [(3, "group g: the time to join is over")]
        assert (await member.joined()).generation_id == 1


@simulated
async def test_a_dead_leader_of_a_rebalance() -> None:
    """It joined and died before it sent the assignments; the others, alive, wait for them."""
    async with SimBroker() as broker:
        await coordinated(broker)
        leader = SimMember(broker)
        await leader.enter()
        leader.client.transport.close()
        [gone] = await advance(broker, MINUTE_S)
        assert told([gone]) == [(10, f"member {leader.member_id} of group g: session expired")]


@simulated
async def test_a_static_member_that_is_away_loses_its_place_after_its_session() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        away, there = SimMember(broker, instance="away"), SimMember(broker, "h", instance="there")
        await away.found()
        await there.found()
        away.client.transport.close()
        [gone] = await advance(broker, MINUTE_S)
        assert str(gone) == f"member {away.member_id} of group g: session expired"
        assert (await describe(client)).group_state == "Empty"
        assert [one.what for one in await advance(broker, DAY_S)] == ["group removed"]
        assert await there.heartbeat() is ErrorCode.NONE


@simulated
async def test_a_member_that_came_back_on_another_connection_is_alive() -> None:
    async with SimBroker() as broker:
        await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        member.client.transport.close()
        member.client = broker.connect()
        assert await member.heartbeat() is ErrorCode.NONE
        assert not await advance(broker, DAY_S)
        assert await member.heartbeat() is ErrorCode.NONE


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
        await move.settle(10, lambda: abort_transaction(broker.node, "a"))
        assert [one.about["transactional_id"] for one in move.happened] == ["a"]
        assert broker.clock.now_ms() == before_ms
        with pytest.raises(TransactionEndedError):
            await producers[0].end(commit=True)
        await producers[1].end(commit=True)
        with pytest.raises(
            InvalidArgumentError, match=r"b has no open transaction: its state is CompleteCommit"
        ):
            await move_of(broker).settle(10, lambda: abort_transaction(broker.node, "b"))
        with pytest.raises(NotFoundError, match=r"no transactional id 'c'.*a, b"):
            await move_of(broker).settle(10, lambda: abort_transaction(broker.node, "c"))


@simulated
async def test_one_member_expires_alone() -> None:
    async with SimBroker(config={"group.initial.rebalance.delay.ms": "0"}) as broker:
        client = await coordinated(broker)
        members = [SimMember(broker, "g"), SimMember(broker, "h", instance="i")]
        for member in members:
            await member.found()

        async def expire(group: str, member: str) -> list[str]:
            move = move_of(broker)
            await move.settle(10, lambda: expire_session(broker.node, group, member))
            return [str(one) for one in move.happened]

        assert await expire("g", members[0].member_id) == [
            f"member {members[0].member_id} of group g: session expired"
        ]
        assert await members[0].heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await describe(client, "h")).group_state == "Stable"
        with pytest.raises(NotFoundError, match=f"no member of group h 'x'.*{members[1].member_id}"):
            await expire("h", "x")
        with pytest.raises(NotFoundError, match=r"no group 'x'.*g, h"):
            await expire("x", "y")
        other = SimMember(broker, "h")
        await other.join()
        await other.send_join()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InvalidArgumentError, match=r"waits for the response to its JoinGroup"):
            await expire("h", other.member_id)
        assert await expire("h", "i") == [f"member {members[1].member_id} of group h: session expired"]
        assert (await other.joined()).error_code == 0


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
        assert "ended while its time was moved" in str(ended)
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
