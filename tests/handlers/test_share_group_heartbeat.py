"""ShareGroupHeartbeat through a whole broker: states initialized, topics that change, time that passes, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.harness.classic_members import coordinated
from tests.harness.requests import create_topic
from tests.harness.share_members import SimShareMember
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

SESSION_S = 45
INTERVAL_S = 2
"""More than the time between two assignments."""


async def described(client: SimClient, group: str = "g") -> Any:
    request = ShareGroupDescribeRequest([group], True)
    response = await client.call(request, 1, ShareGroupDescribeResponse)
    [row] = response.groups
    return row


async def joined(client: SimClient, member_id: str, topics: list[str]) -> SimShareMember:
    """Return a member that has its partitions: they come after their states are initialized."""
    member = SimShareMember(client, member_id, topics)
    await member.join()
    await trio.sleep(INTERVAL_S)
    await member.beat()
    return member


@simulated
async def test_a_member_gets_partitions_once_their_state_is_initialized() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        one = SimShareMember(client, "one", ["t", "later"])
        response = await one.join()
        assert (response.member_id, response.member_epoch, one.owned) == ("one", 2, set())
        assert response.heartbeat_interval_ms == 5_000
        await trio.sleep(INTERVAL_S)
        await one.beat()
        assert (one.epoch, one.owned) == (3, {(topic_id, 0), (topic_id, 1)})
        assert (await one.beat()).assignment is None, "nothing has changed"


@simulated
async def test_members_share_partitions_and_follow_topics() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 1)
        one = await joined(client, "one", ["t", "later"])
        two = await joined(client, "two", ["t", "later"])
        await one.beat()
        assert one.owned == two.owned == {(topic_id, 0)}
        later_id = await create_topic(client, "later")
        grown = CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)], 1000, False)
        await client.call(grown, 3, CreatePartitionsResponse)
        for _ in range(3):
            await trio.sleep(INTERVAL_S)
            await one.beat()
            await two.beat()
        assert one.owned | two.owned == {(topic_id, 0), (topic_id, 1), (later_id, 0)}
        gone = DeleteTopicsRequest([DeleteTopicState("later")], timeout_ms=1000)
        await client.call(gone, 6, DeleteTopicsResponse)
        for _ in range(3):
            await trio.sleep(INTERVAL_S)
            await one.beat()
            await two.beat()
        assert one.owned | two.owned == {(topic_id, 0), (topic_id, 1)}


@simulated
async def test_a_group_survives_its_broker() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        one = await joined(client, "one", ["t"])
        before = await described(client)
        await broker.restart()
        one.client = broker.connect()
        assert await described(one.client) == before
        assert (await one.beat()).error_code == ErrorCode.NONE
        assert one.owned == {(topic_id, 0), (topic_id, 1)}
        await trio.sleep(SESSION_S + 1)
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await described(one.client)).group_state == "Empty"


@simulated
async def test_a_member_leaves() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        one = await joined(client, "one", ["t"])
        assert (await one.leave()).member_epoch == -1
        group = await described(client)
        assert (group.group_state, group.members) == ("Empty", [])
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "error", "message"),
    [
        ("", 0, ["t"], ErrorCode.INVALID_REQUEST, None),
        ("m" * 37, 0, ["t"], ErrorCode.INVALID_REQUEST, None),
        ("m", 0, [], ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ("m", 0, None, ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ("m", -2, ["t"], ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ("m", 1, None, ErrorCode.GROUP_ID_NOT_FOUND, "Share group g not found."),
        ("m", -1, None, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (" ", 0, ["t"], ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
    ],
)
@simulated
async def test_refused(
    member_id: str, epoch: int, topics: list[str] | None, error: ErrorCode, message: str | None
) -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimShareMember(client, member_id, [])
        member.epoch = epoch
        response = await member.beat(subscribed_topic_names=topics)
        assert (response.error_code, response.error_message) == (error, message)


@simulated
async def test_the_feature_is_taken_back() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        one = await joined(client, "one", ["t"])
        for level, upgrade_type, error in ((0, 2, ErrorCode.UNSUPPORTED_VERSION), (1, 1, ErrorCode.NONE)):
            update = UpdateFeaturesRequest(
                1000, [FeatureUpdateKey("share.version", level, upgrade_type=upgrade_type)], False
            )
            assert (await client.call(update, 1, UpdateFeaturesResponse)).error_code == 0
            assert (await one.beat()).error_code == error
            assert (await described(client)).error_code == error
