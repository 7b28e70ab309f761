"""oncelog's own client on both targets."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.errors import error_codes
from oncelog.broker.client.routes import TRANSACTION, BrokerWithId, Controller, CoordinatorOf, LeaderOf, Retry
from oncelog.broker.seams.transport import connect
from oncelog.wire.batch import read_header
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from oncelog.wire.records import iterate_records
from tests.common.batches import batch, record
from tests.common.frames import address

pytestmark = [pytest.mark.also_on("proxy"), pytest.mark.our_client]

RETRY = Retry(timeout_s=60)
NAMED_BY_TOPIC_ID_FROM = 10
"""From this version on OffsetCommit and OffsetFetch name topics by id; this test uses names."""


def run(bootstrap: str, scenario: Callable[[ClusterClient], Awaitable[None]]) -> None:
    async def main() -> None:
        with ClusterClient([address(bootstrap)], connect) as client, trio.fail_after(120):
            await scenario(client)

    trio.run(main)


async def create(client: ClusterClient, name: str) -> bytes:
    """Create a topic, wait until its leader is known (in Kafka after the response), and return its id."""
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000)
    response = await client.call(request, Controller())
    assert error_codes(response) == ()
    await client.call(MetadataRequest([]), LeaderOf(name, 0), retry=RETRY)
    return bytes(response.topics[0].topic_id)


def produce_request(name: str, topic_id: bytes, *values: bytes, acks: int = -1) -> ProduceRequest:
    records = [record(None, value, offset_delta=index) for index, value in enumerate(values)]
    data = [PartitionProduceData(0, batch(records))]
    return ProduceRequest(None, acks, 30_000, [TopicProduceData(name, topic_id, data)])


def fetch_request(name: str, topic_id: bytes, offset: int) -> FetchRequest:
    row = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name, topic_id, [row])]
    return FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)


async def read(client: ClusterClient, name: str, topic_id: bytes, offset: int) -> list[bytes | None]:
    request = fetch_request(name, topic_id, offset)
    response = await client.call(request, LeaderOf(name, 0), retry=RETRY)
    assert error_codes(response) == ()
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    values, at = [], 0
    while at < len(records):
        header = read_header(records, at)
        values += [one.value for one in iterate_records(records, header, offset=at)]
        at += header.size
    return values


def test_cluster_and_topics(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        topic_id = await create(client, name)
        response = await client.call(MetadataRequest(None))
        assert topic_id in [topic.topic_id for topic in response.topics]
        cluster = await client.call(DescribeClusterRequest())
        assert (cluster.error_code, cluster.cluster_id) == (0, response.cluster_id)
        [node] = cluster.brokers
        await client.call(MetadataRequest([]), BrokerWithId(node.broker_id))
        assert client.metadata.brokers == {node.broker_id: (node.host, node.port)}
        assert response.controller_id == client.metadata.controller_id == node.broker_id

    run(bootstrap, scenario)


def test_produce_and_fetch(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        topic_id = await create(client, name)
        leader = LeaderOf(name, 0)
        response = await client.call(produce_request(name, topic_id, b"a", b"b"), leader, retry=RETRY)
        assert response.responses[0].partition_responses[0].base_offset == 0
        assert await read(client, name, topic_id, 0) == [b"a", b"b"]
        async with trio.open_nursery() as nursery:

            async def fetch_delayed() -> None:
                """Fetch, delayed until a Produce on another connection."""
                assert await read(client, name, topic_id, 2) == [b"c"]

            nursery.start_soon(fetch_delayed)
            with ClusterClient([address_of(client, leader)], connect) as other:
                await other.call(produce_request(name, topic_id, b"c"), leader)
        rows = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)])]
        listed = await client.call(ListOffsetsRequest(-1, 0, rows), leader)
        assert listed.topics[0].partitions[0].offset == 3

    run(bootstrap, scenario)


def address_of(client: ClusterClient, leader: LeaderOf) -> tuple[str, int]:
    found = client.metadata.topic(leader.topic, trio.current_time())
    assert found is not None
    return client.metadata.brokers[found.partitions[leader.partition].leader_id]


def test_several_in_flight_and_one_without_a_response(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        topic_id = await create(client, name)
        leader = LeaderOf(name, 0)
        await client.call(produce_request(name, topic_id, b"0"), leader, retry=RETRY)
        connection = await client.connection(leader)
        await connection.send_without_response(produce_request(name, topic_id, b"1", acks=0))
        sent = [await connection.send(produce_request(name, topic_id, b"%d" % one)) for one in range(2, 20)]
        for offset, in_flight in reversed(list(enumerate(sent, 2))):
            response = await in_flight.wait_response()
            assert response.responses[0].partition_responses[0].base_offset == offset
        assert await read(client, name, topic_id, 0) == [b"%d" % one for one in range(20)]

    run(bootstrap, scenario)


def test_a_group_of_one(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        await create(client, name)
        group = CoordinatorOf(name)
        protocols = [JoinGroupRequestProtocol("range", b"")]
        join = JoinGroupRequest(name, 30_000, 30_000, "", None, "consumer", protocols)
        joined = await client.call(join, group, retry=RETRY)
        assert error_codes(joined) == (ErrorCode.MEMBER_ID_REQUIRED,)  # not retriable: the caller handles it
        join.member_id = joined.member_id
        joined = await client.call(join, group)
        assert (error_codes(joined), joined.leader) == ((), joined.member_id)
        shares = [SyncGroupRequestAssignment(joined.member_id, b"all")]
        sync = SyncGroupRequest(
            name, joined.generation_id, joined.member_id, None, "consumer", "range", shares
        )
        assert (await client.call(sync, group)).assignment == b"all"

        rows = [OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 17)])]
        commit = OffsetCommitRequest(name, joined.generation_id, joined.member_id, None, topics=rows)
        assert error_codes(await client.call(commit, group, version=NAMED_BY_TOPIC_ID_FROM - 1)) == ()
        groups = [
            OffsetFetchRequestGroup(name, topics=[OffsetFetchRequestTopics(name, partition_indexes=[0])])
        ]
        fetched = await client.call(
            OffsetFetchRequest(groups=groups), group, version=NAMED_BY_TOPIC_ID_FROM - 1
        )
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == 17

        listed = await client.call(ListGroupsRequest(), group)
        assert name in [row.group_id for row in listed.groups]
        left = LeaveGroupRequest(name, members=[MemberIdentity(joined.member_id)])
        assert error_codes(await client.call(left, group)) == ()
        commit.generation_id_or_member_epoch += 1
        late = await client.call(commit, group, version=NAMED_BY_TOPIC_ID_FROM - 1)
        assert error_codes(late) == (ErrorCode.UNKNOWN_MEMBER_ID,)

    run(bootstrap, scenario)


def test_a_transactional_id(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        coordinator = CoordinatorOf(name, TRANSACTION)
        epochs = []
        for _ in range(2):
            response = await client.call(InitProducerIdRequest(name, 60_000), coordinator, retry=RETRY)
            assert error_codes(response) == ()
            epochs.append(response.producer_epoch)
        assert epochs == [0, 1]

    run(bootstrap, scenario)


def test_errors(bootstrap: str, name: str) -> None:
    async def scenario(client: ClusterClient) -> None:
        with pytest.raises(KafkaError) as caught:
            await client.call(MetadataRequest([]), LeaderOf(name, 0))
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = await create(client, name)
        late = await client.call(
            fetch_request(name, topic_id, 5), LeaderOf(name, 0), retry=Retry(timeout_s=1)
        )
        assert error_codes(late) == (ErrorCode.OFFSET_OUT_OF_RANGE,)
        again = await client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1000), Controller())
        assert error_codes(again) == (ErrorCode.TOPIC_ALREADY_EXISTS,)
        refused = await client.call(CreateTopicsRequest([CreatableTopic("a b", 1, 1)], 1000), Controller())
        assert error_codes(refused) == (ErrorCode.INVALID_TOPIC_EXCEPTION,)

    run(bootstrap, scenario)


def test_an_unsupported_version(bootstrap: str, name: str) -> None:
    """Both targets close the connection without a response; the client's next call opens a new one."""

    async def scenario(client: ClusterClient) -> None:
        await client.call(MetadataRequest([]))
        with pytest.raises(KafkaError, match="the broker closed the connection") as caught:
            await client.call(InitProducerIdRequest(name, 60_000), version=InitProducerIdRequest.MAX_VERSION)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
        assert (await client.call(MetadataRequest([]))).brokers

    run(bootstrap, scenario)
