"""AlterShareGroupOffsets, DescribeShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups of share groups."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.harness.classic_members import coordinated
from tests.harness.requests import create_topic
from tests.harness.share_members import SimShareMember
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def alter(client: SimClient, offsets: dict[int, int], topic: str = "t", group: str = "g") -> Any:
    rows = [AlterShareGroupOffsetsRequestPartition(*row) for row in offsets.items()]
    request = AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic(topic, rows)])
    return await client.call(request, 0, AlterShareGroupOffsetsResponse)


async def described(client: SimClient, topics: dict[str, list[int]] | None = None, group: str = "g") -> Any:
    """Return the start offset and the lag by topic and partition."""
    rows = None
    if topics is not None:
        rows = [DescribeShareGroupOffsetsRequestTopic(*row) for row in topics.items()]
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, rows)])
    response = await client.call(request, 1, DescribeShareGroupOffsetsResponse)
    [told] = response.groups
    assert told.error_code == 0
    return {
        (topic.topic_name, row.partition_index): (row.start_offset, row.lag)
        for topic in told.topics
        for row in topic.partitions
    }


async def delete(client: SimClient, *topics: str, group: str = "g") -> Any:
    rows = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    return await client.call(DeleteShareGroupOffsetsRequest(group, rows), 0, DeleteShareGroupOffsetsResponse)


async def delete_group(client: SimClient, group: str = "g") -> int:
    response = await client.call(DeleteGroupsRequest([group]), 2, DeleteGroupsResponse)
    return int(response.results[0].error_code)


@simulated
async def test_offsets_are_set_described_and_deleted() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        assert await described(client) == {}
        response = await alter(client, {0: 3, 5: 1})
        assert [row.error_code for row in response.responses[0].partitions] == [0, UNKNOWN]
        assert await described(client) == {("t", 0): (3, -3)}
        assert await described(client, {"t": [1], "nowhere": [0]}) == {
            ("t", 1): (-1, -1),
            ("nowhere", 0): (-1, -1),
        }
        await broker.restart()
        client = broker.connect()
        assert await described(client) == {("t", 0): (3, -3)}
        response = await delete(client, "t", "nowhere")
        assert [(row.topic_name, row.error_code) for row in response.responses] == [
            ("t", 0),
            ("nowhere", UNKNOWN),
        ]
        assert await described(client) == {}
        assert (await delete(client, "t")).responses[0].error_code == UNKNOWN


@simulated
async def test_a_group_with_members_keeps_its_offsets() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t")
        member = SimShareMember(client, "m", ["t"])
        await member.join()
        assert (await alter(client, {0: 1})).error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await delete(client, "t")).error_code == ErrorCode.NON_EMPTY_GROUP
        assert await delete_group(client) == ErrorCode.NON_EMPTY_GROUP
        await member.leave()
        assert (await alter(client, {0: 1})).error_code == 0
        assert await delete_group(client) == 0
        assert await described(client) == {}
        assert await delete_group(client) == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await delete(client, "t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@simulated
async def test_what_was_altered_is_not_initialized_again() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        await alter(client, {0: 7})
        member = SimShareMember(client, "m", ["t"])
        await member.join()
        await trio.sleep(2)
        await member.beat()
        assert member.owned == {(topic_id, 0), (topic_id, 1)}
        assert await described(client) == {("t", 0): (7, -7), ("t", 1): (0, 0)}


@simulated
async def test_a_deleted_topic_takes_its_states_along() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t")
        await alter(client, {0: 1})
        gone = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000)
        await client.call(gone, 6, DeleteTopicsResponse)
        await trio.sleep(0.1)
        await create_topic(client, "t")
        assert await described(client) == {}
        [row] = (await delete(client, "t")).responses
        assert row.error_message == "There is no offset information to delete."


KEY = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (f"g:{KEY}:0", 0),
        (f"a:b:{KEY}:0", 0),
        (f"g:{KEY}:0:", 0),
        (f" :{KEY}:0", ErrorCode.INVALID_REQUEST),
        (f":{KEY}:0", ErrorCode.INVALID_REQUEST),
        (f"g:{KEY}:x", ErrorCode.INVALID_REQUEST),
        (f"g:{KEY}:{2**31}", ErrorCode.INVALID_REQUEST),
        (f"g:{KEY}", ErrorCode.INVALID_REQUEST),
        ("g:AAAA:0", ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
    ],
)
@simulated
async def test_the_coordinator_of_a_share_partition(key: str, error: int) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        response = await client.call(request, 6, FindCoordinatorResponse)
        assert response.coordinators[0].error_code == error
