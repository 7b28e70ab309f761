"""ConsumerGroupHeartbeat through a whole broker: topics that change, time that passes, restarts, refusals."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.harness.classic_members import coordinated
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

SESSION_S = 45
GROUP_RESOURCE = 32


class SimConsumer:
    """``owned``: the assigned partitions as (topic id, partition)."""

    def __init__(
        self, client: SimClient, member_id: str, topics: list[str] | None = None, regex: str | None = None
    ) -> None:
        self.client = client
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()

    async def join(self, version: int = 1) -> Any:
        self.epoch = 0
        said: dict[str, Any] = {} if version == 0 else {"subscribed_topic_regex": self.regex}
        return await self.beat(
            version=version,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=self.topics,
            topic_partitions=[],
            **said,
        )

    async def beat(self, version: int = 1, **said: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest("g", self.member_id, self.epoch, **said)
        response = await self.client.call(request, version, ConsumerGroupHeartbeatResponse)
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.member_epoch
            if response.assignment is not None:
                self.owned = {
                    (row.topic_id, number)
                    for row in response.assignment.topic_partitions
                    for number in row.partitions
                }
        return response


async def described(client: SimClient, group: str = "g") -> Any:
    request = ConsumerGroupDescribeRequest([group], True)
    response = await client.call(request, 1, ConsumerGroupDescribeResponse)
    [row] = response.groups
    return row


@simulated
async def test_a_member_lives_and_follows_its_topics() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        one = SimConsumer(client, "one", ["t", "later"])
        await one.join()
        assert (one.epoch, one.owned) == (2, {(topic_id, 0), (topic_id, 1)})
        await trio.sleep(2)
        later_id = await create_topic(client, "later")
        await trio.sleep(2)
        await one.beat()
        assert (later_id, 0) in one.owned
        grown = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)], 1000, False)
        await client.call(grown, 3, CreatePartitionsResponse)
        await trio.sleep(2)
        await one.beat()
        assert len(one.owned) == 4
        gone = DeleteTopicsRequest([DeleteTopicState("later")], timeout_ms=1000)
        await client.call(gone, 6, DeleteTopicsResponse)
        await trio.sleep(2)
        await one.beat()
        assert one.owned == {(topic_id, number) for number in range(3)}


@simulated
async def test_an_expression_is_resolved_beside_the_heartbeats() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t")
        await create_topic(client, "other")
        one = SimConsumer(client, "one", regex="t.*")
        await one.join()
        assert one.owned == set()
        await trio.sleep(0.001)
        await one.beat()
        assert one.owned == {(topic_id, 0)}
        second_id = await create_topic(client, "t2")
        for _ in range(4):
            await trio.sleep(5)
            await one.beat()
        assert one.owned == {(topic_id, 0), (second_id, 0)}


@simulated
async def test_a_group_survives_its_broker() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        one = SimConsumer(client, "one", ["t"])
        await one.join()
        before = await described(client)
        await broker.crash("process")
        await broker.start()
        one.client = broker.connect()
        assert (await described(one.client)) == before
        response = await one.beat()
        assert (response.error_code, one.epoch) == (ErrorCode.NONE, 2)
        assert one.owned == {(topic_id, 0), (topic_id, 1)}
        await trio.sleep(SESSION_S + 1)
        assert (await described(one.client)).group_state == "Empty"
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@simulated
async def test_a_groups_own_heartbeat_interval() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        change = AlterableConfig("consumer.heartbeat.interval.ms", 0, "7000")
        resource = AlterConfigsResource(GROUP_RESOURCE, "g", [change])
        await client.call(
            IncrementalAlterConfigsRequest([resource], False), 1, IncrementalAlterConfigsResponse
        )
        one = SimConsumer(client, "one", ["t"])
        assert (await one.join()).heartbeat_interval_ms == 7_000


@pytest.mark.parametrize("version", [0, 1])
def test_before_the_offsets_topic_exists(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            one = SimConsumer(client, "one", ["t"])
            assert (await one.join(version)).error_code == ErrorCode.NOT_COORDINATOR
            await coordinated(broker)
            assert (await one.join(version)).error_code == ErrorCode.NONE

    run()


@simulated
async def test_without_the_feature_or_the_protocol() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        one = SimConsumer(client, "one", ["t"])
        for level, upgrade_type, code in (
            (0, 2, ErrorCode.UNSUPPORTED_VERSION),
            (1, 1, ErrorCode.NONE),
        ):
            update = UpdateFeaturesRequest(
                1000, [FeatureUpdateKey("group.version", level, False, upgrade_type)]
            )
            assert (await client.call(update, 1, UpdateFeaturesResponse)).error_code == 0
            response = await one.join()
            assert (response.error_code, response.error_message) == (code, None)
            assert (await described(client)).error_code == code
    async with SimBroker(config={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        one = SimConsumer(await coordinated(broker), "one", ["t"])
        assert (await one.join()).error_code == ErrorCode.UNSUPPORTED_VERSION


@simulated
async def test_errors_without_a_coordinator() -> None:
    async with SimBroker() as broker:
        one = SimConsumer(broker.connect(), "", ["t"])
        response = await one.join()
        assert (response.error_code, response.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "MemberId can't be empty.",
        )
        assert (response.member_id, response.assignment) == (None, None)


@simulated
async def test_a_disk_that_becomes_full() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        one = SimConsumer(client, "one", ["t"])
        await one.join()
        before = await described(client)
        broker.files.faults.append(Fault("write", errno.ENOSPC, lambda path: "__consumer_offsets" in path))
        two = SimConsumer(client, "two", ["t"])
        response = await two.join()
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        assert (response.member_id, response.assignment) == (None, None)
        broker.files.faults.clear()
        assert await described(client) == before
        assert (await two.join()).error_code == ErrorCode.NONE


@simulated
async def test_others_have_their_turn_between_heartbeats_with_expressions() -> None:
    """To compile an expression takes up to 0.05 s, and a connection may send hundreds of heartbeats at once."""
    async with SimBroker() as broker:
        client, other = await coordinated(broker), broker.connect()
        beats = [
            ConsumerGroupHeartbeatRequest(
                "g",
                f"m{number}",
                rebalance_timeout_ms=1000,
                subscribed_topic_regex=f"t{number}",
                topic_partitions=[],
            )
            for number in range(50)
        ]
        answered: list[str] = []

        async def beat() -> None:
            await client.send_bytes(b"".join(encode_request(one, 1, 0, "app") for one in beats))
            for _ in beats:
                response = await client.receive(ConsumerGroupHeartbeatResponse, 1)
                assert response.error_code == 0, response
                answered.append("beat")

        async def ask() -> None:
            for _ in range(5):
                await other.call(MetadataRequest([]), 12, MetadataResponse)
                answered.append("metadata")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            nursery.start_soon(ask)
        assert answered[-1] == "beat", "others do not wait until all were handled"
