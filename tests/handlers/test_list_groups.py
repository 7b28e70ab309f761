"""ListGroups: the groups of all shards."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@pytest.mark.parametrize("version", range(6))
def test_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            response = await client.call(ListGroupsRequest(), version, ListGroupsResponse)
            assert (response.error_code, response.groups) == (ErrorCode.NONE, []), "nothing to coordinate yet"
            await coordinated(broker)
            for group in ("a", "b", "c"):
                await SimMember(broker, group).found()
            pending = SimMember(broker, "d")
            await pending.join()
            response = await client.call(ListGroupsRequest(), version, ListGroupsResponse)
            shown = {
                (row.group_id, row.protocol_type, row.group_state, row.group_type) for row in response.groups
            }
            state, kind = ("Stable", "Empty") if version >= 4 else ("", ""), "classic" if version >= 5 else ""
            assert shown == {(group, "consumer", state[0], kind) for group in "abc"} | {
                ("d", "", state[1], kind)
            }
            if version >= 4:
                response = await client.call(ListGroupsRequest(["stable"]), version, ListGroupsResponse)
                assert {row.group_id for row in response.groups} == {"a", "b", "c"}
            if version >= 5:
                response = await client.call(ListGroupsRequest([], ["consumer"]), version, ListGroupsResponse)
                assert response.groups == []
            await broker.restart()
            response = await broker.connect().call(ListGroupsRequest(), version, ListGroupsResponse)
            while response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                response = await broker.connect().call(ListGroupsRequest(), version, ListGroupsResponse)
            assert {row.group_id for row in response.groups} == {"a", "b", "c", "d"}

    run()
