"""Groups whose coordinator moves to another node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.topic_names import OFFSETS_TOPIC
from tests.harness.classic_members import SESSION_MS, SimMember
from tests.harness.node_clients import NodesLink
from tests.harness.sim_client import SimClient
from tests.harness.sim_nodes import SimNodes
from tests.harness.simulation import simulated


@asynccontextmanager
async def two_nodes() -> AsyncIterator[SimNodes]:
    """All groups on node 1, the topic ``t`` on node 2."""
    async with SimNodes(2, {"group.initial.rebalance.delay.ms": "0"}) as nodes:
        nodes.create_topic(OFFSETS_TOPIC, [1])
        nodes.create_topic("t", [2])
        yield nodes


def member(nodes: SimNodes, node_id: int = 1) -> SimMember:
    return SimMember(nodes.nodes[node_id])  # type: ignore[arg-type]


async def groups_of(client: SimClient) -> list[str]:
    response = await client.call(ListGroupsRequest(), 5, ListGroupsResponse)
    assert response.error_code == 0
    return [group.group_id for group in response.groups]


def test_a_classic_member_goes_on_at_the_new_coordinator() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            one = member(nodes)
            await one.found()
            await nodes.move(OFFSETS_TOPIC, 0, 2)
            assert await one.heartbeat() is ErrorCode.NOT_COORDINATOR
            found = await one.client.call(
                FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse
            )
            assert found.coordinators[0].node_id == 2
            one.client = nodes.connect(2)
            assert await one.heartbeat() is ErrorCode.NONE
            assert await groups_of(nodes.connect(1)) == []
            assert await groups_of(nodes.connect(2)) == ["g"]
            # Its session is the new coordinator's to end.
            await trio.sleep(SESSION_MS / 1000 + 1)
            assert await one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    run()


@pytest.mark.parametrize("waits_for", ["join", "sync"])
def test_who_waits_at_the_former_coordinator_is_sent_away(waits_for: str) -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            leader, follower = member(nodes), member(nodes)
            await leader.found()
            await follower.join()  # it gets its id
            await follower.send_join()
            await trio.sleep(0.1)
            assert await leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
            if waits_for == "sync":
                await leader.join()
                await follower.joined()
                await follower.send_sync()
                await trio.sleep(0.01)
            await nodes.move(OFFSETS_TOPIC, 0, 2)
            with trio.fail_after(1):
                got: Any = await (follower.joined() if waits_for == "join" else follower.synced())
            assert got.error_code == ErrorCode.NOT_COORDINATOR
            assert (
                not len(nodes[1].groups.runtime.timer.deadlines) - 1
            )  # that of expired offsets is the node's

    run()


class ConsumerMember:
    """A member of a group of the consumer protocol (KIP-848)."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.member_id = ""
        self.epoch = 0

    async def beat(self, **said: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest("g", self.member_id, self.epoch, **said)
        response = await self.client.call(request, 0, ConsumerGroupHeartbeatResponse)
        if response.error_code == 0:
            self.member_id, self.epoch = response.member_id, response.member_epoch
        return response


def test_a_consumer_member_goes_on_at_the_new_coordinator() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            one = ConsumerMember(nodes.connect(1))
            joined = await one.beat(
                rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[]
            )
            assert joined.error_code == 0
            epoch = one.epoch
            await nodes.move(OFFSETS_TOPIC, 0, 2)
            assert (await one.beat()).error_code == ErrorCode.NOT_COORDINATOR
            one.client = nodes.connect(2)
            assert (await one.beat()).error_code == 0
            assert one.epoch == epoch
            # Its session is the new coordinator's to end, and not the former one's.
            await trio.sleep(46)
            assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run()


def test_a_new_coordinator_ends_sessions_without_being_asked() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            await member(nodes).found()
            await nodes.move(OFFSETS_TOPIC, 0, 2)
            await trio.sleep(SESSION_MS / 1000 + 1)
            assert await groups_of(nodes.connect(2)) == ["g"]
            [context] = nodes[2].groups.runtime.loaded.values()
            assert not context.shard.groups["g"].members  # type: ignore[attr-defined]

    run()


def test_a_change_of_the_isr_disturbs_nobody() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            one, other = member(nodes), member(nodes)
            await one.found()
            await other.join()
            await other.send_join()
            await trio.sleep(0.01)
            shard = nodes[1].groups.runtime.loaded[0].shard
            nodes.change_isr(OFFSETS_TOPIC, 0)
            await one.join()
            assert (await other.joined()).error_code == 0
            assert nodes[1].groups.runtime.loaded[0].shard is shard

    run()


def test_a_new_epoch_of_the_same_leader_disturbs_nobody() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            one, other = member(nodes), member(nodes)
            await one.found()
            await other.join()
            await other.send_join()
            await trio.sleep(0.01)
            await nodes.move(OFFSETS_TOPIC, 0, 1)
            await one.join()
            assert (await other.joined()).error_code == 0
            await one.sync({one.member_id: b"", other.member_id: b"all"})
            assert (await other.sync()).assignment == b"all"
            assert nodes.log(OFFSETS_TOPIC, 0).epochs.latest == 1

    run()


def test_a_coordinator_that_lost_and_regained_its_partition_between_two_looks_loads_it_again() -> None:
    @simulated
    async def run() -> None:
        async with two_nodes() as nodes:
            one = member(nodes)
            await one.found()
            shard = nodes[1].groups.runtime.loaded[0].shard
            # Node 1 learns of both epochs at once.
            metadata = nodes.followers.pop(1)
            begin = len(nodes.batches)
            nodes.elect(OFFSETS_TOPIC, 0, 2)
            nodes.elect(OFFSETS_TOPIC, 0, 1)
            metadata.follow([record for batch in nodes.batches[begin:] for record in batch], 99)
            nodes.followers[1] = metadata
            assert await one.heartbeat() is ErrorCode.NONE
            assert nodes[1].groups.runtime.loaded[0].shard is not shard

    run()


def test_a_node_loads_only_what_it_leads() -> None:
    @simulated
    async def run() -> None:
        async with SimNodes(2, {"group.initial.rebalance.delay.ms": "0"}) as nodes:
            nodes.create_topic(OFFSETS_TOPIC, [1, 2])
            link = NodesLink(nodes)
            groups = [f"g{number}" for number in range(4)]
            for group in groups:
                one = SimMember(nodes.nodes[link.group_coordinator(group)], group)  # type: ignore[arg-type]
                await one.found()
            loaded = [set(nodes[node_id].groups.runtime.loaded) for node_id in (1, 2)]
            assert loaded == [{0}, {1}]
            await nodes.move(OFFSETS_TOPIC, 1, 1)
            for node in nodes.nodes.values():  # also after a start, when both have the log of partition 1
                await node.restart()
            await trio.sleep(1)
            assert [set(nodes[node_id].groups.runtime.loaded) for node_id in (1, 2)] == [{0, 1}, set()]
            assert sorted(await groups_of(nodes.connect(1))) == groups

    run()
