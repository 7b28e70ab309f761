"""Moving a broker's time past the sessions of members: the dead ones go, and the live ones stay."""

from __future__ import annotations

import pytest
import trio

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.operations.clock import expire_session
from oncelog.wire.errors import ErrorCode
from tests.control.time_moves import DAY_S, HOUR_S, MINUTE_S, advance, move_of, told
from tests.harness.classic_members import SESSION_MS, SimMember, coordinated, describe
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


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


@simulated
async def test_one_member_expires_alone() -> None:
    async with SimBroker(config={"group.initial.rebalance.delay.ms": "0"}) as broker:
        client = await coordinated(broker)
        members = [SimMember(broker, "g"), SimMember(broker, "h", instance="i")]
        for member in members:
            await member.found()

        async def expire(group: str, member: str) -> list[str]:
            move = move_of(broker)
            await move.settle(10, lambda: expire_session((broker.node,), group, member))
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
