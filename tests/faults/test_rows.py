"""Filters for rows on a whole broker: topics by their ids, requests for all there are, groups and transactional ids."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.refusal.rows import FACTS, depths_of
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.common.batches import batch, record
from tests.faults.filled_requests import api_of
from tests.faults.rules import ruled
from tests.harness.offset_requests import commit
from tests.harness.requests import create_topic, produce, produce_request, read_all
from tests.harness.simulation import simulated

REFUSED = ErrorCode.LEADER_NOT_AVAILABLE


def metadata_codes(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", [1, 9, 12, 13])
@simulated
async def test_metadata_of_all_topics_and_of_some(version: int) -> None:
    async with ruled() as it:
        client = it.broker.connect()
        for name in "ab":
            await create_topic(client, name)
        rule = it.add(on="Metadata", topic="b", error="LEADER_NOT_AVAILABLE")
        expected = {"a": 0, "b": REFUSED}
        response = await client.call(MetadataRequest(None), version, MetadataResponse)
        assert metadata_codes(response) == expected
        assert [len(topic.partitions) for topic in response.topics] == [1, 0]
        assert len(response.brokers) == 1
        asked = [MetadataRequestTopic(name=name) for name in "ab"]
        response = await client.call(MetadataRequest(asked), version, MetadataResponse)
        assert metadata_codes(response) == expected
        assert it.counts(rule) == (2, 2)
        response = await client.call(MetadataRequest(asked[:1]), version, MetadataResponse)
        assert metadata_codes(response) == {"a": 0}
        assert it.counts(rule) == (2, 2)


@simulated
async def test_metadata_by_topic_id() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        ids = [await create_topic(client, name) for name in "ab"]
        it.add(on="Metadata", topic="b", error="LEADER_NOT_AVAILABLE")
        asked = [MetadataRequestTopic(topic_id, None) for topic_id in ids]
        response = await client.call(MetadataRequest(asked), 12, MetadataResponse)
        assert [topic.error_code for topic in response.topics] == [0, REFUSED]
        assert [bytes(topic.topic_id) for topic in response.topics] == ids


@simulated
async def test_all_topics_where_the_rules_topic_is_not_among_them() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "a")
        rule = it.add(on="Metadata", topic="b", error="LEADER_NOT_AVAILABLE")
        response = await client.call(MetadataRequest(None), 12, MetadataResponse)
        assert metadata_codes(response) == {"a": 0}
        assert it.counts(rule) == (1, 0)
        assert it.state(rule).notes == ("a response of Metadata version 12 had no place for the error",)


@simulated
async def test_produce_and_fetch_by_topic_id() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        ids = [await create_topic(client, name) for name in "ab"]
        it.add(on=["Produce", "Fetch"], topic="b", error="NOT_LEADER_OR_FOLLOWER", first=2)
        rows = [
            TopicProduceData(topic_id=one, partition_data=[PartitionProduceData(0, batch())]) for one in ids
        ]
        produced = await client.call(ProduceRequest(None, 1, 1000, rows), 13, ProduceResponse)
        codes = [(topic.topic_id, topic.partition_responses[0].error_code) for topic in produced.responses]
        assert codes == [(ids[0], 0), (ids[1], 6)]
        partitions = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
        topics = [FetchTopic(topic_id=one, partitions=partitions) for one in ids]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)
        fetched = await client.call(request, 13, FetchResponse)
        codes = [(topic.topic_id, topic.partitions[0].error_code) for topic in fetched.responses]
        assert codes == [(ids[0], 0), (ids[1], 6)]
        assert len(await read_all(client, "b")) == 0


@simulated
async def test_a_refused_fetch_does_not_wait_for_records() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="Fetch", topic="t", error="NOT_LEADER_OR_FOLLOWER")
        partitions = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic("t", partitions=partitions)]
        )
        started = trio.current_time()
        response = await client.call(request, 12, FetchResponse)
        assert response.responses[0].partitions[0].error_code == 6
        assert trio.current_time() - started < 1


@simulated
async def test_a_topic_is_not_deleted_by_name_nor_by_id() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        topic_id = await create_topic(client, "a")
        rule = it.add(on="DeleteTopics", topic="a", error="TOPIC_DELETION_DISABLED")
        for state in (DeleteTopicState("a"), DeleteTopicState(None, topic_id)):
            response = await client.call(DeleteTopicsRequest([state]), 6, DeleteTopicsResponse)
            assert [row.error_code for row in response.responses] == [ErrorCode.TOPIC_DELETION_DISABLED]
        assert it.counts(rule) == (2, 2)
        assert len(await read_all(client, "a")) == 0


@simulated
async def test_one_group_of_several() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        await client.call(FindCoordinatorRequest("", 0, ["g", "h"]), 4, FindCoordinatorResponse)
        await trio.testing.wait_all_tasks_blocked()
        for group in ("g", "h"):
            await commit(client, group, {"t": {0: 5}})
        it.add(on="OffsetFetch", group="h", error="COORDINATOR_LOAD_IN_PROGRESS", first=1)
        it.add(on="OffsetFetch", topic="t", group="g", error="UNSTABLE_OFFSET_COMMIT", nth=2)
        groups = [OffsetFetchRequestGroup(name, topics=None) for name in ("g", "h")]
        request = OffsetFetchRequest(groups=groups)
        first = await client.call(request, 8, OffsetFetchResponse)
        assert [(row.group_id, row.error_code, len(row.topics)) for row in first.groups] == [
            ("g", 0, 1),
            ("h", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
        ]
        second = await client.call(request, 8, OffsetFetchResponse)
        rows = [(row.group_id, row.error_code, row.topics[0].partitions[0]) for row in second.groups]
        assert [(group, code, row.committed_offset, row.error_code) for group, code, row in rows] == [
            ("g", 0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
            ("h", 0, 5, 0),
        ]


@simulated
async def test_the_configuration_of_one_topic() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        for name in ("1", "t"):
            await create_topic(client, name)
        it.add(on="DescribeConfigs", topic="1", error="TOPIC_AUTHORIZATION_FAILED")
        resources = [DescribeConfigsResource(kind, name) for kind, name in ((4, "1"), (2, "t"), (2, "1"))]
        response = await client.call(DescribeConfigsRequest(resources), 4, DescribeConfigsResponse)
        rows = [(row.resource_type, row.resource_name, row.error_code) for row in response.results]
        assert rows == [(4, "1", 0), (2, "t", 0), (2, "1", 29)]


@simulated
async def test_where_rows_have_no_error_the_whole_response_has_it() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="DescribeLogDirs", topic="t", error="KAFKA_STORAGE_ERROR")
        response = await client.call(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)
        assert (response.error_code, response.results) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        response = await client.call(DescribeLogDirsRequest([]), 4, DescribeLogDirsResponse)
        assert response.error_code == 0


@simulated
async def test_by_listener_version_and_client_id() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        wrong: list[dict[str, Any]] = [
            {"listener": "OTHER"},
            {"version": "3+"},
            {"client_id": ["other", "another"]},
        ]
        rules = [it.add(on="ListGroups", close=True, **filters) for filters in wrong]
        right = it.add(
            on=["ListGroups", "Fetch"],
            listener="PLAINTEXT",
            version=[2, 4],
            client_id="simulated",
            delay_ms=1,
        )
        await client.call(ListGroupsRequest(), 2, ListGroupsResponse)
        assert [it.counts(rule) for rule in rules] == [(0, 0)] * 3
        assert it.counts(right) == (1, 1)


@simulated
async def test_responses_keep_their_order_when_a_rule_comes_while_produces_wait_for_the_disk() -> None:
    async with ruled() as it:
        client, other = it.broker.connect(), it.broker.connect()
        await create_topic(client, "flushed", configs={"flush.messages": "1"})
        it.broker.files.latency_s = 5
        for _ in range(3):
            await client.send(produce_request("flushed", batch([record(None, b"v")])), 9)
        await trio.testing.wait_all_tasks_blocked()
        it.add(on="Produce", nth=2, error="NOT_LEADER_OR_FOLLOWER")
        it.add(on="Produce", nth=1, duplicate=True)
        for _ in range(2):
            await client.send(produce_request("flushed", batch([record(None, b"v")])), 9)
        await client.send(ListGroupsRequest(), 2)
        rows = []
        for _ in range(5):
            response = await client.receive(ProduceResponse, 9)
            row = response.responses[0].partition_responses[0]
            rows.append((row.base_offset, row.error_code))
        assert rows == [(0, 0), (1, 0), (2, 0), (4, 0), (-1, 6)]
        assert (await client.receive(ListGroupsResponse, 2)).error_code == 0
        assert (await produce(other, "flushed")).base_offset == 5


SHARE_STATE = {
    "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
}  # fmt: skip
TOPICS = {
    "AddPartitionsToTxn", "AlterConfigs", "AlterPartitionReassignments", "AlterReplicaLogDirs", "CreatePartitions",
    "CreateTopics", "DeleteRecords", "DeleteTopics", "DescribeConfigs", "DescribeLogDirs", "DescribeProducers",
    "DescribeQuorum", "DescribeTopicPartitions", "ElectLeaders", "Fetch", "IncrementalAlterConfigs",
    "ListPartitionReassignments", "ListOffsets", "Metadata", "OffsetCommit", "OffsetDelete", "OffsetFetch",
    "OffsetForLeaderEpoch", "Produce", "ShareAcknowledge", "ShareFetch", "TxnOffsetCommit", "WriteTxnMarkers",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "DescribeShareGroupOffsets", *SHARE_STATE,
}  # fmt: skip
NO_PARTITIONS = {
    "AlterConfigs", "CreatePartitions", "CreateTopics", "DeleteTopics", "DescribeConfigs", "DescribeTopicPartitions",
    "IncrementalAlterConfigs", "Metadata", "DeleteShareGroupOffsets",
}  # fmt: skip
NAMED = {
    "topic": TOPICS,
    "partition": TOPICS - NO_PARTITIONS,
    "group": {
        "AddOffsetsToTxn", "AlterConfigs", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "DeleteGroups",
        "DescribeConfigs", "DescribeGroups", "FindCoordinator", "Heartbeat", "IncrementalAlterConfigs", "JoinGroup",
        "LeaveGroup", "OffsetCommit", "OffsetDelete", "OffsetFetch", "SyncGroup", "TxnOffsetCommit",
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "DescribeShareGroupOffsets", "ShareGroupDescribe",
        "ShareAcknowledge", "ShareFetch", "ShareGroupHeartbeat", *SHARE_STATE,
    },
    "transactional_id": {
        "AddOffsetsToTxn", "AddPartitionsToTxn", "DescribeTransactions", "EndTxn", "FindCoordinator",
        "InitProducerId", "Produce", "TxnOffsetCommit",
    },
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_what_the_requests_of_each_api_name(fact: str) -> None:
    found = {
        api_name(handler.name)
        for handler in HANDLERS.values()
        for version in range(handler.min_version, handler.max_version + 1)
        if fact in depths_of(handler.name, api_of(handler.name).request, version)
    }
    assert found == NAMED[fact]


@pytest.mark.parametrize("version", [1, 9, 12])
@simulated
async def test_metadata_that_is_refused_still_tells_of_brokers(version: int) -> None:
    """A Java client ignores a Metadata response without brokers, and would never see the error."""
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "a")
        for filters in ({"topic": "a"}, {}):
            rule = it.add(on="Metadata", error="LEADER_NOT_AVAILABLE", **filters)
            for asked in ([MetadataRequestTopic(name="a")], None):
                response = await client.call(MetadataRequest(asked), version, MetadataResponse)
                assert (metadata_codes(response), len(response.brokers)) == ({"a": REFUSED}, 1)
            it.rules.remove(rule)


@simulated
async def test_a_refused_topic_is_not_created() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="Metadata", topic="new", error="LEADER_NOT_AVAILABLE", nth=1)
        asked = [MetadataRequestTopic(name="new")]
        response = await client.call(MetadataRequest(asked), 9, MetadataResponse)
        assert metadata_codes(response) == {"new": REFUSED}
        assert "new" not in it.broker.node.metadata.image.topics
        await client.call(MetadataRequest(asked), 9, MetadataResponse)
        assert "new" in it.broker.node.metadata.image.topics
