"""DeleteGroups: deletes empty groups with their offsets. Each group has one result, in the order of the request."""

from __future__ import annotations

import errno

import pytest

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tests.harness.classic_members import SimMember, coordinated, describe
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated, simulated_work
from tests.sim.disk import Fault

MANY = 6_000
"""Offsets: some batches of tombstones."""


@pytest.mark.parametrize("version", range(3))
def test_in_every_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            request = DeleteGroupsRequest(["busy", "gone", "nobody", "simple", "gone", ""])
            response = await client.call(request, version, DeleteGroupsResponse)
            assert {row.error_code for row in response.results} == {ErrorCode.NOT_COORDINATOR}
            await coordinated(broker)
            await create_topic(client, "t")
            await SimMember(broker, "busy").found()
            gone = SimMember(broker, "gone")
            await gone.found()
            await gone.leave()
            for group in ("gone", "simple"):
                await commit(client, group, {"t": {0: 5}})
            response = await client.call(request, version, DeleteGroupsResponse)
            assert [(row.group_id, row.error_code) for row in response.results] == [
                ("busy", ErrorCode.NON_EMPTY_GROUP),
                ("gone", ErrorCode.NONE),
                ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
                ("simple", ErrorCode.NONE),
                ("", ErrorCode.GROUP_ID_NOT_FOUND),
            ]
            client = await broker.restart()
            for group in ("gone", "simple"):
                assert await fetch_offsets(client, group, {"t": [0]}) == {("t", 0): -1}
                assert (await describe(client, group)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run()


@simulated
async def test_on_a_full_disk_nothing_is_deleted() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        await member.leave()
        broker.files.faults.append(Fault("write", errno.ENOSPC))
        response = await client.call(DeleteGroupsRequest(["g"]), 2, DeleteGroupsResponse)
        assert [row.error_code for row in response.results] == [ErrorCode.NOT_COORDINATOR]
        assert (await describe(client)).group_state == "Empty"


@pytest.mark.slow
@simulated_work(steps=2)
async def test_a_group_with_very_many_offsets() -> None:
    """It takes several turns. Whoever asks for the group meanwhile is told to ask again, and finds nothing left."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        other = broker.connect()
        await create_topic(client, "t", MANY)
        for first in range(0, MANY, 1_000):
            await commit(client, "g", {"t": dict.fromkeys(range(first, min(first + 1_000, MANY)), 5)})
        await client.send(DeleteGroupsRequest(["g", "nobody"]), 2)
        codes = set()
        while not client.unread():
            codes |= set((await commit(other, "g", {"t": {0: 7}})).values())
        assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in codes
        response = await client.receive(DeleteGroupsResponse, 2)
        assert [(row.group_id, row.error_code) for row in response.results] == [
            ("g", ErrorCode.NONE),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        left = await fetch_offsets(client, "g")
        assert left in ({}, {("t", 0): 7}), left


@simulated
async def test_a_group_is_held_by_one_at_a_time() -> None:
    """Two deletions that have begun with different groups may come to the same one."""
    async with SimBroker() as broker:
        await coordinated(broker)
        groups = broker.node.groups
        with groups.held("g"):
            with pytest.raises(KafkaError) as caught, groups.held("g"):
                pass
            assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with groups.held("g"):
            pass
