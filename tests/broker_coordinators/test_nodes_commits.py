"""Coordinators whose records are not committed: followers do not fetch, or the ISR is too small."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from oncelog.wire.control import COMMIT_MARKER
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from oncelog.wire.stored.metadata import PartitionChangeRecord
from oncelog.wire.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.broker_coordinators.test_nodes_transactions import markers
from tests.harness.node_clients import NodesLink
from tests.harness.sim_client import SimClient
from tests.harness.sim_nodes import SimNodes
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import TransactionalProducer


@asynccontextmanager
async def three_nodes(min_isr: int = 1) -> AsyncIterator[SimNodes]:
    """Node 1 coordinates everything, and leads the topic ``t``."""
    async with SimNodes(3, {"replica.lag.time.max.ms": "600000"}) as nodes:
        configs = {"min.insync.replicas": str(min_isr)}
        nodes.create_topic(TRANSACTIONS_TOPIC, [1], configs)
        nodes.create_topic(OFFSETS_TOPIC, [1], configs)
        nodes.create_topic("t", [1])
        yield nodes


async def commit_offset(client: SimClient, offset: int) -> ErrorCode:
    rows = [OffsetCommitRequestPartition(0, offset)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)])
    response = await client.call(request, 9, OffsetCommitResponse)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fetch_offset(client: SimClient, group: str = "g") -> int:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    response = await client.call(request, 8, OffsetFetchResponse)
    [found] = response.groups
    assert found.error_code == 0, ErrorCode(found.error_code)
    return int(found.topics[0].partitions[0].committed_offset)


async def list_groups(client: SimClient) -> list[str]:
    response = await client.call(ListGroupsRequest(), 5, ListGroupsResponse)
    assert response.error_code == 0
    return [group.group_id for group in response.groups]


def lonely(nodes: SimNodes, topic: str) -> None:
    """Node 1 is alone in the ISR of a topic's partition."""
    change = PartitionChangeRecord(partition_id=0, topic_id=nodes.topic(topic).topic_id)
    change.isr = [1]
    nodes.commit([change])


def test_a_commit_waits_for_the_watermark_as_long_as_kafkas() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as nodes:
            client = nodes.connect(1)
            assert await commit_offset(client, 1) is ErrorCode.NONE
            release = nodes.hold(FetchRequest)
            await trio.sleep(1)  # what the followers have asked before is answered
            began = trio.current_time()
            assert await commit_offset(client, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert trio.current_time() - began == pytest.approx(5, abs=0.1)
            release.set()
            nodes.hold_no_more()
            assert await commit_offset(client, 3) is ErrorCode.NONE

    run()


def test_reads_see_what_is_committed_and_do_not_wait() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as nodes:
            client, reader = nodes.connect(1), nodes.connect(1)
            assert await commit_offset(client, 1) is ErrorCode.NONE
            release = nodes.hold(FetchRequest)
            await trio.sleep(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_offset, client, 2)
                await trio.sleep(1)
                with trio.fail_after(1):
                    assert await fetch_offset(reader) == 1
                    assert await list_groups(reader) == ["g"]
                with trio.fail_after(0.01):  # the watermark is where it was
                    assert await fetch_offset(reader) == 1
                release.set()
                nodes.hold_no_more()
                await trio.sleep(1)
                assert await fetch_offset(reader) == 2

    run()


def test_a_group_that_is_not_committed_is_not_there_yet() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as nodes:
            client, reader = nodes.connect(1), nodes.connect(1)
            assert await list_groups(reader) == []
            nodes.hold(FetchRequest)
            await trio.sleep(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_offset, client, 1)
                await trio.sleep(1)
                assert await list_groups(reader) == []
                assert await fetch_offset(reader) == -1
                # The group's own shard has it, with its timers, and goes on with it.
                assert "g" in nodes[1].groups.runtime.loaded[0].shard.groups

    run()


def test_groups_write_below_the_minimum_isr_and_transactions_do_not() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes(min_isr=2) as nodes:
            client = nodes.connect(1)
            nodes.hold(FetchRequest)
            await trio.sleep(1)
            lonely(nodes, OFFSETS_TOPIC)
            lonely(nodes, TRANSACTIONS_TOPIC)
            assert await commit_offset(client, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert nodes.log(OFFSETS_TOPIC, 0).log_end_offset == 1
            request = InitProducerIdRequest("id", 60_000)
            began = trio.current_time()
            response = await client.call(request, 4, InitProducerIdResponse)
            assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert trio.current_time() - began < 1
            assert nodes.log(TRANSACTIONS_TOPIC, 0).log_end_offset == 0

    run()


def test_no_marker_is_written_before_its_decision_is_committed() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as nodes:
            producer = TransactionalProducer(NodesLink(nodes), "id")
            await producer.init()
            await producer.send("t", 0, [b"a"], nodes.clock.now_ms())
            release = nodes.hold(FetchRequest)
            await trio.sleep(1)

            async def end() -> None:
                await producer.end(commit=True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(end)
                await trio.sleep(10)
                assert markers(nodes, "t") == []
                reader: Any = nodes.connect(1)
                described = await reader.call(
                    DescribeTransactionsRequest(["id"]), 0, DescribeTransactionsResponse
                )
                [state] = described.transaction_states
                assert state.transaction_state == "Ongoing"
                release.set()
                nodes.hold_no_more()
            assert markers(nodes, "t") == [COMMIT_MARKER]

    run()


def test_a_marker_carries_the_leader_epoch_of_its_coordinator() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as nodes:
            producer = TransactionalProducer(NodesLink(nodes), "id")
            await producer.init()
            await producer.send("t", 0, [b"a"], nodes.clock.now_ms())
            await nodes.move(TRANSACTIONS_TOPIC, 0, 1)  # the same node leads on
            await producer.end(commit=True)
            while not markers(nodes, "t"):
                await trio.sleep(0.01)
            entry = nodes.log("t", 0).producers.producers[producer.producer_id]
            assert entry.coordinator_epoch == 1

    run()
