"""Produce: rows, errors and acks. Compared with Kafka on the same bytes in compat_tests/logs/test_diff_produce.py."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.common.batches import TRANSACTIONAL, batch, record
from tests.harness.requests import create_topic, fetch, produce, produce_request, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated, simulated_work
from tests.sim.files import Fault


@simulated
async def test_rows_come_in_request_order_and_fail_alone() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        rows = [
            PartitionProduceData(1, batch(2)),
            PartitionProduceData(7, batch()),
            PartitionProduceData(0, None),
        ]
        topics = [
            TopicProduceData("a", partition_data=rows),
            TopicProduceData("no", partition_data=[PartitionProduceData(0, batch())]),
        ]
        response = await client.call(ProduceRequest(None, -1, 1000, topics), 9, ProduceResponse)
        got = [
            (topic.name, row.index, ErrorCode(row.error_code).name, row.base_offset)
            for topic in response.responses
            for row in topic.partition_responses
        ]
        assert got == [
            ("a", 1, "NONE", 0),
            ("a", 7, "UNKNOWN_TOPIC_OR_PARTITION", -1),
            ("a", 0, "INVALID_RECORD", -1),
            ("no", 0, "UNKNOWN_TOPIC_OR_PARTITION", -1),
        ]


@simulated
async def test_a_topic_by_id() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a")
        rows = [
            TopicProduceData(topic_id=one, partition_data=[PartitionProduceData(0, batch())])
            for one in (topic_id, b"\7" * 16)
        ]
        response = await client.call(ProduceRequest(None, 1, 1000, rows), 13, ProduceResponse)
        got = [(topic.topic_id, topic.partition_responses[0].error_code) for topic in response.responses]
        assert got == [(topic_id, 0), (b"\7" * 16, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("acks", [2, -2])
def test_impossible_acks(acks: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a")
            assert (await produce(client, "a", acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert await read_all(client, "a") == []

    run()


@simulated
async def test_acks_0_gets_no_response_and_an_error_closes_the_connection() -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(other, "a")
        await client.send(produce_request("a", batch(), acks=0), 9)
        assert (await produce(client, "a")).base_offset == 1
        await client.send(produce_request("missing", batch(), acks=0), 9)
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


@simulated
async def test_min_insync_replicas_above_the_number_of_replicas() -> None:
    """No more replicas count than there are (``Partition.effectiveMinIsr``)."""
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", configs={"min.insync.replicas": "2"})
        for offset, acks in enumerate((-1, -1, 1)):
            assert (await produce(client, "a", acks=acks)).base_offset == offset


@simulated
async def test_transactional_batches_without_a_transactional_id() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        marked = batch(attributes=TRANSACTIONAL, producer=(1000, 0, 0))
        row = await produce(client, "a", marked)
        assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await read_all(client, "a") == []


@simulated
async def test_a_record_error_names_the_record() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", configs={"cleanup.policy": "compact"})
        keyless = [record(b"k", b"v"), record(None, b"v", offset_delta=1)]
        row = await produce(client, "a", batch(keyless))
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in row.record_errors] == [1]
        assert await read_all(client, "a") == []


@simulated
async def test_a_flushed_produce_gets_its_response_after_the_fsync_and_is_invisible_before() -> None:
    async with SimBroker() as broker:
        client, reader = broker.connect(), broker.connect()
        await create_topic(client, "a", configs={"flush.messages": "1"})
        broker.files.latency_s = 5
        for _ in range(3):
            await client.send(produce_request("a", batch(), acks=1), 9)
        await trio.testing.wait_all_tasks_blocked()
        assert client.unread() == 0
        assert (await fetch(reader, "a", 0)).high_watermark == 0
        for expected in range(3):
            response = await client.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].base_offset == expected
        assert (await fetch(reader, "a", 0)).high_watermark == 3


@simulated
async def test_a_failed_fsync_is_an_error_and_takes_the_log_offline() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", configs={"flush.messages": "1"})
        await create_topic(client, "b")
        broker.files.faults.append(Fault("fsync", errno.EIO, lambda path: "/a-0/" in path))
        assert (await produce(client, "a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(client, "a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(client, "b")).error_code == 0


@pytest.mark.parametrize("flush", ["1", "1000"])
def test_partitions_that_take_long_together(flush: str) -> None:
    """Other connections have their turn between partitions. The responses and their order are the same."""

    @simulated_work(steps=1)
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": flush}) as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(other, "a", 4)
            missing_rows = range(20)  # more than fit into the first turn, which ends among them
            topics = [
                TopicProduceData(
                    name, partition_data=[PartitionProduceData(at, batch(at + 1)) for at in rows]
                )
                for name, rows in (("a", (2,)), ("no", missing_rows), ("a", (0, 9, 3)))
            ]
            await client.send(ProduceRequest(None, 1, 1000, topics), 9)
            await client.send(produce_request("a", batch(5), 2), 9)
            seen = await produce(other, "a", batch(7), 1)
            assert (seen.error_code, client.unread()) == (0, 0)
            response = await client.receive(ProduceResponse, 9)
            got = [
                (topic.name, row.index, row.error_code, row.base_offset)
                for topic in response.responses
                for row in topic.partition_responses
            ]
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert got == [
                ("a", 2, 0, 0),
                *(("no", at, missing, -1) for at in missing_rows),
                ("a", 0, 0, 0),
                ("a", 9, missing, -1),
                ("a", 3, 0, 0),
            ]
            response = await client.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].base_offset == 3
            assert [one.base_offset for one in await read_all(client, "a", 2)] == [0, 3]
            assert [one.last_offset_delta for one in await read_all(client, "a", 3)] == [3]

    run()
