"""Share groups whose data, state and group are on different nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from oncelog.broker.metadata.image import GROUP
from oncelog.coordinator.share.state import StateSummary
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from oncelog.wire.messages.share_fetch import ShareFetchResponse
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.metadata import ConfigRecord, FeatureLevelRecord
from oncelog.wire.topic_names import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from tests.harness.requests import produce
from tests.harness.share_members import SimShareMember
from tests.harness.share_readers import ShareReader
from tests.harness.sim_nodes import SimNodes
from tests.harness.simulation import simulated

STATE_NODE, GROUP_NODE, DATA_NODE = 1, 2, 3
ACCEPT, REJECT = 1, 3


@asynccontextmanager
async def three_nodes(*, encodes: bool = True) -> AsyncIterator[tuple[SimNodes, Uuid]]:
    """The state of share partitions on one node, groups on the next, the topic ``t`` on the third."""
    async with SimNodes(encodes=encodes) as nodes:
        nodes.commit([FeatureLevelRecord(name="share.version", feature_level=1)])
        nodes.create_topic(SHARE_GROUP_STATE_TOPIC, [STATE_NODE])
        nodes.create_topic(OFFSETS_TOPIC, [GROUP_NODE])
        yield nodes, nodes.create_topic("t", [DATA_NODE])


async def initialize(nodes: SimNodes, topic_id: Uuid) -> None:
    """Let a member join, so that the group has its states initialized."""
    member = SimShareMember(nodes.connect(GROUP_NODE), "m", ["t"])
    while not member.owned:
        response = await (member.join() if member.epoch == 0 else member.beat())
        assert response.error_code == 0, response
        await trio.sleep(0.5)
    assert member.owned == {(topic_id, 0)}


async def completed(nodes: SimNodes, topic_id: Uuid) -> int:
    """How many of the first records are stored as accepted."""
    stored = await nodes[GROUP_NODE].share_persister.summary("g", topic_id, 0)
    return stored.start_offset + stored.delivery_complete_count


@pytest.mark.parametrize("encodes", [False, True])
def test_what_was_accepted_does_not_come_again_after_the_data_moved(encodes: bool) -> None:
    @simulated
    async def run() -> None:
        async with three_nodes(encodes=encodes) as (nodes, topic_id):
            await initialize(nodes, topic_id)
            for _ in range(3):
                await produce(nodes.connect(DATA_NODE), "t")
            await nodes[GROUP_NODE].share_persister.initialize("g", topic_id, 0, 9, 0)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire(wait_ms=1000) == [(0, 2, 1)]
            assert await reader.acknowledge((0, 0, [ACCEPT])) == 0
            await nodes.move("t", 0, GROUP_NODE)
            # The former leader sends its reader to the new one.
            response = await reader.call(reader.request())
            [row] = response.responses[0].partitions
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (GROUP_NODE, 1)
            assert [node.host for node in response.node_endpoints] == [f"node-{GROUP_NODE}"]
            # Record 0 was accepted; 1 and 2 were delivered once, and that is not stored: they come a first time.
            other = ShareReader(nodes.connect(GROUP_NODE), topic_id)
            assert await other.acquire(wait_ms=1000) == [(1, 2, 1)]
            assert await other.acknowledge((1, 2, [ACCEPT])) == 0
            assert await completed(nodes, topic_id) == 3

    run()


def test_a_fetch_that_waits_at_the_former_leader_ends_at_once() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire() == []
            await reader.client.send(reader.request(wait_ms=60_000), 2)
            await trio.sleep(1)
            await nodes.move("t", 0, GROUP_NODE)
            with trio.fail_after(1):
                response = await reader.client.receive(ShareFetchResponse, 2)
            [row] = response.responses[0].partitions
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not len(nodes[DATA_NODE].shares)

    run()


def test_a_change_of_the_isr_leaves_acquired_records_with_their_member() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire() == []
            await produce(nodes.connect(DATA_NODE), "t")
            assert await reader.acquire(wait_ms=1000) == [(0, 0, 1)]
            nodes.change_isr("t", 0)
            assert await reader.acknowledge((0, 0, [ACCEPT])) == 0

    run()


def test_a_new_epoch_takes_acquired_records_from_their_member() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            await nodes[GROUP_NODE].share_persister.initialize("g", topic_id, 0, 9, 0)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire() == []
            await produce(nodes.connect(DATA_NODE), "t")
            assert await reader.acquire(wait_ms=1000) == [(0, 0, 1)]
            await nodes.move("t", 0, DATA_NODE)
            assert await reader.acknowledge((0, 0, [ACCEPT])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await reader.acquire(wait_ms=1000) == [(0, 0, 1)]

    run()


def test_acknowledgements_wait_for_a_state_that_moves() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire() == []
            await produce(nodes.connect(DATA_NODE), "t")
            assert await reader.acquire(wait_ms=1000) == [(0, 0, 1)]
            nodes.network.cut(DATA_NODE, STATE_NODE)
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def move() -> None:
                    await trio.sleep(2)
                    await nodes.move(SHARE_GROUP_STATE_TOPIC, 0, GROUP_NODE)

                assert await reader.acknowledge((0, 0, [ACCEPT])) == 0
            assert await completed(nodes, topic_id) == 1

    run()


def test_dead_letters_go_to_the_node_that_leads_the_queue() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            nodes.create_topic("dlq.g", [STATE_NODE], {"errors.deadletterqueue.group.enable": "true"})
            nodes.commit(
                [
                    FeatureLevelRecord(name="share.version", feature_level=2),
                    ConfigRecord(GROUP, "g", "errors.deadletterqueue.topic.name", "dlq.g"),
                ]
            )
            await initialize(nodes, topic_id)
            reader = ShareReader(nodes.connect(DATA_NODE), topic_id)
            assert await reader.acquire() == []
            await produce(nodes.connect(DATA_NODE), "t")
            assert await reader.acquire(wait_ms=1000) == [(0, 0, 1)]
            nodes.network.cut(DATA_NODE, STATE_NODE)
            await nodes.move(SHARE_GROUP_STATE_TOPIC, 0, GROUP_NODE)
            assert await reader.acknowledge((0, 0, [REJECT])) == 0
            await trio.sleep(0.5)
            assert nodes.log("dlq.g", 0).log_end_offset == 0
            nodes.network.heal()
            await trio.sleep(5)
            assert nodes.log("dlq.g", 0).log_end_offset == 1
            assert await completed(nodes, topic_id) == 1

    run()


def test_the_lag_of_a_share_partition_is_asked_of_its_leader() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            await nodes[GROUP_NODE].share_persister.initialize("g", topic_id, 0, 9, 0)
            await produce(nodes.connect(DATA_NODE), "t")
            request = DescribeShareGroupOffsetsRequest(
                [
                    DescribeShareGroupOffsetsRequestGroup(
                        "g", [DescribeShareGroupOffsetsRequestTopic("t", [0])]
                    )
                ]
            )
            response = await nodes.connect(GROUP_NODE).call(request, 1, DescribeShareGroupOffsetsResponse)
            [row] = response.groups[0].topics[0].partitions
            assert (row.error_code, row.start_offset, row.lag) == (0, 0, 1)

    run()


def test_a_leader_of_an_earlier_epoch_cannot_store() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            await nodes[GROUP_NODE].share_persister.read("g", topic_id, 0, 5)
            with pytest.raises(KafkaError) as caught:
                await nodes[DATA_NODE].share_persister.write("g", topic_id, 0, 0, 4, 1, 0, [])
            assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH

    run()


def test_calls_for_a_share_partition_keep_their_order_over_a_link() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            await initialize(nodes, topic_id)
            nodes.network.delay(DATA_NODE, STATE_NODE, 1.0)
            persister = nodes[DATA_NODE].share_persister
            async with trio.open_nursery() as nursery:
                nursery.start_soon(persister.initialize, "g", topic_id, 0, 7, 10)
                await trio.sleep(0.1)
                nodes.network.heal()
                nursery.start_soon(persister.write, "g", topic_id, 0, 7, 0, 11, 0, [])
            assert await persister.summary("g", topic_id, 0) == StateSummary(7, 0, 11, 0)
            await persister.delete("g", topic_id, 0)
            assert await persister.summary("g", topic_id, 0) == StateSummary(0, 0, -1, -1)

    run()


def test_calls_without_a_group_or_for_an_unknown_partition_fail_at_once() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, topic_id):
            persister = nodes[DATA_NODE].share_persister
            for group, partition, code in (
                ("", 0, ErrorCode.INVALID_REQUEST),
                ("g", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("g", -1, ErrorCode.INVALID_REQUEST),
            ):
                began = trio.current_time()
                with pytest.raises(KafkaError) as caught:
                    await persister.summary(group, topic_id, partition)
                assert caught.value.code is code
                assert trio.current_time() == began

    run()
