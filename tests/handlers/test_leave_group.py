"""LeaveGroup: one member or several, in the words of each version."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.harness.classic_members import LEAVE, SimMember, coordinated, describe
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@pytest.mark.parametrize("version", range(LEAVE + 1))
def test_leaving_in_every_version(version: int) -> None:
    """Before version 3 the error code is the response's, from then on the member's."""

    def code(response: LeaveGroupResponse) -> int:
        assert version < 3 or response.error_code == ErrorCode.NONE
        return response.error_code if version < 3 else response.members[0].error_code

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = await coordinated(broker)
            member = SimMember(broker)
            assert code(await member.leave(version)) == ErrorCode.UNKNOWN_MEMBER_ID
            await member.found()
            assert code(await member.leave(version)) == ErrorCode.NONE
            assert code(await member.leave(version)) == ErrorCode.UNKNOWN_MEMBER_ID
            assert (await describe(client)).group_state == "Empty"
            member.group = ""
            assert (await member.leave(version)).error_code == ErrorCode.INVALID_GROUP_ID

    run()


@simulated
async def test_administrators_remove_static_members_together() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimMember(broker, instance="i")
        await member.found()
        rows = [MemberIdentity("", "i", "gone"), MemberIdentity("", "j"), MemberIdentity("x")]
        response = await client.call(LeaveGroupRequest("g", members=rows), LEAVE, LeaveGroupResponse)
        assert response.error_code == ErrorCode.NONE
        assert [(row.member_id, row.group_instance_id, row.error_code) for row in response.members] == [
            ("", "i", ErrorCode.NONE),
            ("", "j", ErrorCode.UNKNOWN_MEMBER_ID),
            ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
