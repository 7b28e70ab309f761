"""SyncGroup: followers wait for the leader's assignments, and the assignments are durable."""

from __future__ import annotations

import errno
from typing import Literal

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.harness.classic_members import SYNC, SimMember, coordinated, describe
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault


@simulated
async def test_followers_wait_for_the_leader() -> None:
    async with SimBroker() as broker:
        await coordinated(broker)
        first, second = SimMember(broker), SimMember(broker)
        await first.found()
        await second.join()
        await second.send_join()
        await trio.sleep(0.1)
        await first.join()
        await second.joined()
        await second.send_sync()
        await trio.sleep(1)
        assert second.client.unread() == 0
        response = await first.sync({second.member_id: b"2", first.member_id: b"1"})
        assert (response.assignment, response.protocol_name) == (b"1", "range")
        assert (await second.synced()).assignment == b"2"


@pytest.mark.parametrize("version", range(SYNC + 1))
def test_refusals_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = await coordinated(broker)
            for group, code in (("", ErrorCode.INVALID_GROUP_ID), ("g", ErrorCode.UNKNOWN_MEMBER_ID)):
                request = SyncGroupRequest(group, 1, "m", None, "consumer", "range")
                if version < 5:
                    request.protocol_type = request.protocol_name = None
                response = await client.call(request, version, SyncGroupResponse)
                assert (response.error_code, response.assignment) == (code, b"")
            if version >= 5:
                for words in ((None, "range"), ("consumer", None)):
                    request = SyncGroupRequest("", 1, "m", None, *words)
                    response = await client.call(request, version, SyncGroupResponse)
                    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run()


@pytest.mark.parametrize("crash", ["process", "power"])
def test_an_assignment_outlives_the_process(crash: Literal["process", "power"]) -> None:
    """Any process may die; a loss of power is survived if every write is flushed."""

    @simulated
    async def run() -> None:
        flushed = {"log.flush.interval.messages": "1"} if crash == "power" else {}
        async with SimBroker(config=flushed) as broker:
            await coordinated(broker)
            member = SimMember(broker)
            await member.found()
            await broker.crash(crash)
            await broker.start()
            member.client = broker.connect()
            row = await describe(member.client)
            assert [one.member_assignment for one in row.members] == [b"all"]
            assert (await member.sync()).assignment == b"all"

    run()


@simulated
async def test_an_assignment_that_cannot_be_written() -> None:
    """The disk is full: the members get an error and join again."""
    async with SimBroker() as broker:
        await coordinated(broker)
        member = SimMember(broker)
        await member.enter()
        broker.files.faults.append(Fault("write", errno.ENOSPC))
        response = await member.sync({member.member_id: b"all"})
        assert (response.error_code, response.assignment) == (ErrorCode.NOT_COORDINATOR, b"")
        assert (await describe(member.client)).group_state == "PreparingRebalance"
