"""TxnOffsetCommit and AddOffsetsToTxn: offsets are valid after their transaction has committed."""

from __future__ import annotations

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.wire.schema import ZERO_UUID
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    ABORTABLE,
    CLASSIC,
    GROUP,
    OLDEST,
    V2,
    Link,
    TransactionalProducer,
    Versions,
    committed_offset,
)


async def begun(broker: SimBroker, versions: Versions = V2) -> TransactionalProducer:
    client = broker.connect()
    await create_topic(client, "t", 2)
    producer = TransactionalProducer(Link(client), "id", versions)
    await producer.init()
    await producer.find("g", GROUP)
    return producer


@pytest.mark.parametrize("versions", [OLDEST, CLASSIC, ABORTABLE, V2])
@pytest.mark.parametrize("restart", ["", "process", "stop"])
def test_offsets_are_valid_after_the_commit(versions: Versions, restart: str) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = await begun(broker, versions)
            for offset, commit in ((3, True), (5, False), (7, True)):
                await producer.send_offset("g", "t", 0, offset)
                if restart == "stop":
                    await broker.stop()
                elif restart:
                    await broker.crash("process")
                if restart:
                    await broker.start()
                    producer.link = Link(broker.connect())
                await producer.end(commit=commit)
                expected = offset if commit else offset - 2
                assert await committed_offset(producer.link, "g", "t", 0) == expected

    run()


def request_of(producer: TransactionalProducer, group: str = "g") -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(0, 3), TxnOffsetCommitRequestPartition(9, 3)]
    topics = [
        TxnOffsetCommitRequestTopic("t", ZERO_UUID, partitions),
        TxnOffsetCommitRequestTopic("unknown", ZERO_UUID, [TxnOffsetCommitRequestPartition(0, 3)]),
    ]
    return TxnOffsetCommitRequest("id", group, producer.producer_id, producer.epoch, topics=topics)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, 0)]
)
def test_the_partition_of_the_group_must_be_part_of_it(version: int, code: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = await begun(broker)
            client = broker.connect()
            response = await client.call(request_of(producer), version, TxnOffsetCommitResponse)
            found = {
                (topic.name, row.partition_index): row.error_code
                for topic in response.topics
                for row in topic.partitions
            }
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found == {("t", 0): code, ("t", 9): missing, ("unknown", 0): missing}

    run()


@simulated
async def test_verification_can_be_switched_off() -> None:
    config = {"transaction.partition.verification.enable": "false"}
    async with SimBroker(config=config) as broker:
        producer = await begun(broker)
        response = await broker.connect().call(request_of(producer), 3, TxnOffsetCommitResponse)
        assert [topic.partitions[0].error_code for topic in response.topics if topic.name == "t"] == [3]
        rows = [row for topic in response.topics for row in topic.partitions if row.error_code == 0]
        assert len(rows) == 1


@simulated
async def test_a_group_without_a_name() -> None:
    async with SimBroker() as broker:
        producer = await begun(broker)
        response = await broker.connect().call(request_of(producer, ""), 5, TxnOffsetCommitResponse)
        codes = {row.error_code for topic in response.topics for row in topic.partitions}
        assert codes == {ErrorCode.INVALID_GROUP_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_that_is_deleted_while_the_coordinator_is_asked(version: int) -> None:
    """What has its name afterwards gets none of its offsets."""

    @simulated
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
            producer = await begun(broker)
            client, other = broker.connect(), broker.connect()
            ids = {name: await create_topic(other, name) for name in ("gone", "kept")}
            rows = [TxnOffsetCommitRequestPartition(0, 3)]
            topics = [TxnOffsetCommitRequestTopic(name, ids[name], rows) for name in ids]
            request = TxnOffsetCommitRequest("id", "g", producer.producer_id, producer.epoch, topics=topics)
            broker.files.latency_s = 5
            await client.send(request, version)
            await trio.sleep(1)
            deleted = await other.call(DeleteTopicsRequest(topic_names=["gone"]), 5, DeleteTopicsResponse)
            assert deleted.responses[0].error_code == 0
            await create_topic(other, "gone")
            assert client.unread() == 0
            broker.files.latency_s = 0
            response = await client.receive(TxnOffsetCommitResponse, version)
            code = ErrorCode.UNKNOWN_TOPIC_ID if version == 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [topic.partitions[0].error_code for topic in response.topics] == [code, 0]
            await producer.end(commit=True)
            assert await committed_offset(producer.link, "g", "gone", 0) == -1
            assert await committed_offset(producer.link, "g", "kept", 0) == 3

    run()
