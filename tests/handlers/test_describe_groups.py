"""DescribeGroups: groups of several shards in one response, in the order of the request."""

from __future__ import annotations

import pytest

from oncelog.broker.requests.authorization import GROUP_OPERATIONS, NOT_ASKED
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.harness.classic_members import DESCRIBE, SimMember, coordinated
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@pytest.mark.parametrize("version", range(DESCRIBE + 1))
def test_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = await coordinated(broker)
            for group in ("a", "b"):
                await SimMember(broker, group).found()
            request = DescribeGroupsRequest(["b", "nobody", "a", ""], version >= 3)
            response = await client.call(request, version, DescribeGroupsResponse)
            missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
            assert [(row.group_id, row.group_state, row.error_code) for row in response.groups] == [
                ("b", "Stable", ErrorCode.NONE),
                ("nobody", "Dead", missing),
                ("a", "Stable", ErrorCode.NONE),
                ("", "Dead", missing),
            ]
            allowed = [row.authorized_operations for row in response.groups]
            there = GROUP_OPERATIONS if version >= 3 else NOT_ASKED
            assert allowed[0] == allowed[2] == there
            assert allowed[1] == allowed[3] == (NOT_ASKED if missing else there)
            [member] = response.groups[0].members
            assert (member.client_id, member.client_host) == ("simulated", "/client")
            assert (member.member_metadata, member.member_assignment) == (b"m", b"all")

    run()


@simulated
async def test_before_there_is_a_coordinator() -> None:
    async with SimBroker() as broker:
        response = await broker.connect().call(DescribeGroupsRequest(["g"], True), 6, DescribeGroupsResponse)
        [row] = response.groups
        assert (row.group_id, row.error_code, row.group_state) == ("g", ErrorCode.NOT_COORDINATOR, "")
        assert row.authorized_operations == NOT_ASKED
