"""JoinGroup: responses that wait for other members, in virtual time; before a coordinator exists; after a restart."""

from __future__ import annotations

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from tests.harness.classic_members import JOIN, SimMember, coordinated, describe
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_no_coordinator_before_the_offsets_topic_exists() -> None:
    async with SimBroker() as broker:
        member = SimMember(broker)
        response = await member.join()
        assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, "")
        await coordinated(broker)
        assert (await member.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", range(JOIN + 1))
def test_refusals_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            await coordinated(broker)
            member = SimMember(broker, group="")
            member.member_id = "said"
            response = await member.join(version)
            assert (response.error_code, response.member_id) == (ErrorCode.INVALID_GROUP_ID, "said")
            assert response.protocol_name == (None if version >= 7 else "")
            member.group, member.session_ms = "g", 1
            response = await member.join(version)
            assert (response.error_code, response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "said")

    run()


@simulated
async def test_the_first_members_wait_for_more() -> None:
    async with SimBroker(config={"group.initial.rebalance.delay.ms": "3000"}) as broker:
        await coordinated(broker)
        members = [SimMember(broker) for _ in range(3)]
        began = trio.current_time()
        for member in members:
            await member.join()
            await member.send_join()
            await trio.sleep(1)
        responses = [await member.joined() for member in members]
        assert trio.current_time() - began == pytest.approx(6)
        assert [len(response.members) for response in responses] == [3, 0, 0]
        assert {response.generation_id for response in responses} == {1}


@simulated
async def test_a_waiting_member_does_not_delay_other_groups() -> None:
    async with SimBroker() as broker:
        await coordinated(broker)
        first, second = SimMember(broker), SimMember(broker)
        await first.found()
        await second.join()
        await second.send_join()
        await trio.sleep(0.1)
        assert second.client.unread() == 0
        assert await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await describe(first.client)).group_state == "PreparingRebalance"
        await first.join()
        await second.joined()
        assert (first.generation, second.generation) == (2, 2)


@simulated
async def test_the_session_of_a_client_that_disconnects_while_it_waits_ends() -> None:
    """Its response is dropped, and its session times out after the generation has begun."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        first, second = SimMember(broker), SimMember(broker)
        await first.found()
        await second.join()
        await second.send_join()
        await trio.sleep(0.1)
        second.client.transport.close()
        await first.join()
        await first.send_sync({first.member_id: b"all"})
        await first.synced()
        assert len((await describe(client)).members) == 2
        for _ in range(3):
            await trio.sleep(4)
            await first.heartbeat()
        assert len((await describe(client)).members) == 1


@simulated
async def test_a_static_member_that_restarts_with_the_broker_causes_no_rebalance() -> None:
    async with SimBroker() as broker:
        await coordinated(broker)
        first, second = SimMember(broker, instance="a"), SimMember(broker, instance="b")
        await first.found()
        await second.send_join()
        await trio.sleep(0.1)
        await first.join()
        await second.joined()
        await second.send_sync()
        await first.sync({first.member_id: b"1", second.member_id: b"2"})
        await second.synced()
        await broker.crash("process")
        await broker.start()
        again = SimMember(broker, instance="b")
        response = await again.join()
        assert (response.error_code, response.generation_id, response.leader) == (0, 2, first.member_id)
        assert (await again.sync()).assignment == b"2"
        first.client = broker.connect()
        assert await first.heartbeat() == ErrorCode.NONE
