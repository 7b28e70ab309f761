"""OffsetFetch: requests and errors in every version. Commits: test_offset_commit.py."""

from __future__ import annotations

import pytest
import trio.testing

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

UNKNOWN_ID = b"\1" * 16


async def with_offsets(broker: SimBroker) -> SimClient:
    """A client, a topic ``a`` of three partitions, and a group ``g`` that has committed in two of them."""
    client = broker.connect()
    await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
    await create_topic(client, "a", 3)
    await commit(client, "g", {"a": {0: 5, 2: (7, "note")}})
    return client


@pytest.mark.parametrize("version", range(1, 10))
def test_some_and_all(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = await with_offsets(broker)
            asked = {"a": [2, 1], "gone": [0]}
            expected = {("a", 2): (7, "note"), ("a", 1): -1, ("gone", 0): -1}
            assert await fetch_offsets(client, "g", asked, version=version) == expected
            if version >= 2:
                expected = {("a", 0): 5, ("a", 2): (7, "note")}
                assert await fetch_offsets(client, "g", version=version) == expected
                assert await fetch_offsets(client, "other", version=version) == {}

    run()


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_a_group_without_coordinator(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            code = ErrorCode.NOT_COORDINATOR
            expected = {("a", 0): f"error {code}"} if version == 1 else code
            assert await fetch_offsets(client, "g", {"a": [0]}, version=version) == expected

    run()


@simulated
async def test_several_groups_and_topics_by_id() -> None:
    async with SimBroker() as broker:
        client = await with_offsets(broker)
        topic = broker.node.cluster.topic("a")
        assert topic is not None
        wanted = [
            OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=topic.topic_id, partition_indexes=[0]),
        ]
        groups = [
            OffsetFetchRequestGroup("g", topics=wanted),
            OffsetFetchRequestGroup("g", topics=None),
            OffsetFetchRequestGroup("", topics=None),
        ]
        response = await client.call(OffsetFetchRequest(groups=groups), 10, OffsetFetchResponse)
        seen = [
            [
                (topic.topic_id, row.partition_index, row.committed_offset, row.error_code)
                for topic in group.topics
                for row in topic.partitions
            ]
            for group in response.groups
        ]
        assert seen == [
            [(topic.topic_id, 0, 5, 0), (UNKNOWN_ID, 0, -1, ErrorCode.UNKNOWN_TOPIC_ID)],
            [(topic.topic_id, 0, 5, 0), (topic.topic_id, 2, 7, 0)],
            [],
        ]
        assert [row.group_id for row in response.groups] == ["g", "g", ""]


@simulated
async def test_offsets_go_with_their_topic() -> None:
    async with SimBroker() as broker:
        client = await with_offsets(broker)
        await create_topic(client, "b")
        await commit(client, "g", {"b": {0: 1}})
        await client.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1), 5, DeleteTopicsResponse)
        await create_topic(client, "a", 3)
        await trio.testing.wait_all_tasks_blocked()
        assert await fetch_offsets(client, "g") == {("b", 0): 1}
        await broker.crash("process")
        await broker.start()
        assert await fetch_offsets(broker.connect(), "g") == {("b", 0): 1}
