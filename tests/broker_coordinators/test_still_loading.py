"""A coordinator that is still loading: every API returns that in its own way, and changes nothing."""

from __future__ import annotations

import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.harness.classic_members import SimMember, coordinated, describe
from tests.harness.offset_requests import commit, delete_offsets, fetch_offsets
from tests.harness.offsets_topic import OFFSETS_TOPIC, ONE_PARTITION, fill
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COUNT = 2_000
DISK_S = 10


@simulated
async def test_every_api_returns_that_the_coordinator_is_loading() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = await coordinated(broker)
        await create_topic(client, "a", 2)
        fill(broker, "g", COUNT)
        end = broker.node.cluster.leader_partition(OFFSETS_TOPIC, 0).log.log_end_offset
        await broker.stop()
        broker.files.is_cold = lambda path: f"/{OFFSETS_TOPIC}-" in path
        broker.files.latency_s = DISK_S
        await broker.start()
        client = broker.connect()
        member = SimMember(broker)
        consumer = ConsumerGroupHeartbeatRequest(
            "c", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["a"], topic_partitions=[]
        )
        assert await fetch_offsets(client, "g") == LOADING
        assert await commit(client, "g", {"a": {0: 9, 1: 9}}) == {("a", 0): LOADING, ("a", 1): LOADING}
        assert await delete_offsets(client, "g", {"a": [0]}) == LOADING
        codes = [
            (await member.join()).error_code,
            (await member.sync()).error_code,
            (await member.leave()).error_code,
            (await describe(client, "g")).error_code,
            (await client.call(consumer, 1, ConsumerGroupHeartbeatResponse)).error_code,
            (await client.call(ListGroupsRequest(), 5, ListGroupsResponse)).error_code,
            (await client.call(DeleteGroupsRequest(["g"]), 2, DeleteGroupsResponse)).results[0].error_code,
        ]
        asked = ConsumerGroupDescribeRequest(["g"])
        codes.append((await client.call(asked, 1, ConsumerGroupDescribeResponse)).groups[0].error_code)
        assert codes == [LOADING] * 8
        assert await member.heartbeat() is ErrorCode.NONE, (
            "whoever it was, it shall not give up its partitions"
        )
        await trio.sleep(30 * DISK_S)
        assert await fetch_offsets(client, "g") == {("a", number): number for number in range(COUNT)}
        assert broker.node.cluster.leader_partition(OFFSETS_TOPIC, 0).log.log_end_offset == end
        assert list(broker.node.groups.runtime.at(0).groups) == ["g"]
