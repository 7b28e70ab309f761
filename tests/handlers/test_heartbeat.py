"""Heartbeat: sessions in virtual time; responses while the group is loading."""

from __future__ import annotations

import pytest
import trio

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.harness.classic_members import HEARTBEAT, SESSION_MS, SimMember, coordinated, describe
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_a_session_lasts_while_heartbeats_arrive() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        for _ in range(5):
            await trio.sleep(SESSION_MS / 1000 - 0.01)
            assert await member.heartbeat() == ErrorCode.NONE
        await trio.sleep(SESSION_MS / 1000 + 0.01)
        assert (await describe(client)).group_state == "Empty"
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@simulated
async def test_a_restarted_broker_gives_members_a_whole_session() -> None:
    """The group is loaded after the start, even without a request for it."""
    async with SimBroker() as broker:
        await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        await trio.sleep(SESSION_MS / 1000 - 1)
        await broker.restart()
        await trio.sleep(SESSION_MS / 1000 - 1)
        member.client = broker.connect()
        assert await member.heartbeat() == ErrorCode.NONE
        await broker.restart()
        await trio.sleep(SESSION_MS / 1000 + 1)
        assert (await describe(broker.connect())).group_state == "Empty"


@pytest.mark.parametrize("version", range(HEARTBEAT + 1))
def test_refusals_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            for group, code in (("", ErrorCode.INVALID_GROUP_ID), ("g", ErrorCode.NOT_COORDINATOR)):
                response = await client.call(HeartbeatRequest(group, 1, "m"), version, HeartbeatResponse)
                assert response.error_code == code
            await coordinated(broker)
            response = await client.call(HeartbeatRequest("g", 1, "m"), version, HeartbeatResponse)
            assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run()


@simulated
async def test_no_error_while_the_group_is_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)

        def loading(key: str) -> None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        monkeypatch.setattr(broker.node.groups.runtime, "shard_of", loading)
        response = await client.call(HeartbeatRequest("g", 1, "m"), HEARTBEAT, HeartbeatResponse)
        assert response.error_code == ErrorCode.NONE
        member = SimMember(broker)
        assert (await member.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await member.sync()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await member.leave()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await describe(client)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
