"""EndTxn: when the response is sent, and what readers see then."""

from __future__ import annotations

import errno
import itertools

import pytest
import trio

from oncelog.broker.coordinators.marker_writer import AT_ONCE
from oncelog.broker.scheduling.slices import SLICE_STEPS_MAX
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    Versions,
)
from tests.sim.disk import Fault


async def begun(broker: SimBroker, versions: Versions = V2, partitions: int = 2) -> TransactionalProducer:
    client = broker.connect()
    await create_topic(client, "t", partitions)
    producer = TransactionalProducer(Link(client), "id", versions)
    await producer.init()
    return producer


@pytest.mark.parametrize("versions", [CLASSIC, V2])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_commit_is_visible_when_its_response_is_sent(versions: Versions, flushed: bool) -> None:
    """Kafka responds before it writes the markers. Here the markers come first, even if each waits for the disk."""

    @simulated
    async def run() -> None:
        config = {"log.flush.interval.messages": "1"} if flushed else {}
        async with SimBroker(config=config) as broker:
            producer = await begun(broker, versions)
            reader = CommittedReader("t", 0)
            client = broker.connect()
            broker.files.latency_s = 0.002
            for commit in (True, False, True):
                await producer.send("t", 0, [b"%d" % commit], broker.clock.now_ms())
                await producer.send("t", 1, [b"%d" % commit], broker.clock.now_ms())
                await reader.poll(client)
                assert reader.last_stable_offset < reader.high_watermark
                await producer.end(commit=commit)
                await reader.poll(client)
                assert reader.position == reader.high_watermark == reader.last_stable_offset
            assert list(reader.values.values()) == [b"1", b"1"]

    run()


@pytest.mark.parametrize(
    ("version", "code"), [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.INVALID_PRODUCER_EPOCH),
                          (2, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)  # fmt: skip
def test_older_clients_know_no_producer_fenced(version: int, code: ErrorCode) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = await begun(broker)
            await producer.init()
            await producer.send("t", 0, [b"v"], broker.clock.now_ms())
            request = EndTxnRequest("id", producer.producer_id, producer.epoch - 1, True)
            response = await broker.connect().call(request, version, EndTxnResponse)
            assert response.error_code == code
            request = EndTxnRequest("", producer.producer_id, producer.epoch, True)
            response = await broker.connect().call(request, version, EndTxnResponse)
            assert response.error_code == ErrorCode.INVALID_REQUEST

    run()


@simulated
async def test_a_partition_that_cannot_be_written_holds_the_next_transaction_back() -> None:
    """The decision is final and gets its response. The id's next transaction waits for the marker."""
    async with SimBroker() as broker:
        producer = await begun(broker)
        client = broker.connect()
        for partition in range(2):
            await producer.send("t", partition, [b"v"], broker.clock.now_ms())
        broker.files.faults.append(Fault("write", errno.ENOSPC, lambda path: "/t-1/" in path))
        request = EndTxnRequest("id", producer.producer_id, producer.epoch, True)
        response = await client.call(request, 5, EndTxnResponse)
        assert response.error_code == 0
        reader = CommittedReader("t", 0)
        await reader.poll(client)
        assert list(reader.values.values()) == [b"v"]
        request.producer_epoch = response.producer_epoch
        again = await client.call(request, 5, EndTxnResponse)
        assert again.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        broker.files.faults.clear()
        producer.epoch = response.producer_epoch
        producer.sequences.clear()
        await producer.send("t", 1, [b"w"], broker.clock.now_ms())
        await producer.end(commit=True)
        reader = CommittedReader("t", 1)
        await reader.poll(client)
        assert list(reader.values.values()) == [b"v", b"w"]


@simulated
async def test_a_topic_that_is_deleted_takes_its_part_of_the_transaction_with_it() -> None:
    async with SimBroker() as broker:
        producer = await begun(broker)
        client = broker.connect()
        await create_topic(client, "gone")
        await producer.send("t", 0, [b"v"], broker.clock.now_ms())
        await producer.send("gone", 0, [b"v"], broker.clock.now_ms())
        request = DeleteTopicsRequest([DeleteTopicState("gone")], timeout_ms=1000)
        await client.call(request, 6, DeleteTopicsResponse)
        await producer.end(commit=True)
        reader = CommittedReader("t", 0)
        await reader.poll(client)
        assert list(reader.values.values()) == [b"v"]
        await producer.send("t", 0, [b"w"], broker.clock.now_ms())
        await producer.end(commit=True)
        await broker.crash("process")
        await broker.start()
        await broker.node.logs.recovered()
        await reader.poll(broker.connect())
        assert list(reader.values.values()) == [b"v", b"w"]


@simulated
async def test_a_replaced_coordinator_stops_writing_markers() -> None:
    """A coordinator with a higher epoch has ended the transaction in a partition. The old one gives up."""
    async with SimBroker() as broker:
        producer = await begun(broker, CLASSIC)
        client = broker.connect()
        await producer.send("t", 0, [b"v"], broker.clock.now_ms())
        marker = WritableTxnMarker(
            producer.producer_id, producer.epoch, False, [WritableTxnMarkerTopic("t", [0])], 9
        )
        response = await client.call(WriteTxnMarkersRequest([marker]), 1, WriteTxnMarkersResponse)
        assert response.markers[0].topics[0].partitions[0].error_code == 0
        request = EndTxnRequest("id", producer.producer_id, producer.epoch, True)
        assert (await client.call(request, 3, EndTxnResponse)).error_code == 0
        # As on Kafka, the id is of no use until its coordinator is loaded anew.
        for _ in range(3):
            response = await client.call(request, 3, EndTxnResponse)
            assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        await trio.sleep(60)
        reader = CommittedReader("t", 0)
        await reader.poll(client)
        assert not reader.values


@simulated
async def test_an_end_transaction_whose_response_is_lost_in_a_crash() -> None:
    for versions in (CLASSIC, V2):
        async with SimBroker() as broker:
            producer = await begun(broker, versions)
            await producer.send("t", 0, [b"v"], broker.clock.now_ms())
            request = EndTxnRequest("id", producer.producer_id, producer.epoch, True)
            first = await broker.connect().call(request, versions.end, EndTxnResponse)
            await broker.crash("process")
            await broker.start()
            await broker.node.logs.recovered()
            again = first
            while True:
                again = await broker.connect().call(request, versions.end, EndTxnResponse)
                if not ErrorCode(again.error_code).retriable:
                    break
            assert again == first
            request.committed = False
            other = await broker.connect().call(request, versions.end, EndTxnResponse)
            assert other.error_code == ErrorCode.INVALID_TXN_STATE


@simulated
async def test_a_decision_made_while_the_broker_stops_is_carried_out_by_the_next_start() -> None:
    """Its request follows one that waits for a thread and cannot be cancelled. Everything else has ended meanwhile."""
    async with SimBroker() as broker:
        producer = await begun(broker)
        await producer.send("t", 0, [b"v"], broker.clock.now_ms())
        await producer.send("t", 1, [b"w"], broker.clock.now_ms())
        client = await broker.restart()
        full = Fault("write", errno.ENOSPC, lambda path: "/t-1/" in path)
        broker.files.faults.append(full)  # so that the marker has to be tried again
        broker.files.is_cold = lambda path: "/t-0/" in path
        broker.files.latency_s = 1
        topic = FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1_000_000)])
        # After two at once the connection looks at once whether there is more.
        await client.send(ApiVersionsRequest("test", "1"), 3)
        await client.send(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[topic]), 4)
        await trio.sleep(0.5)
        await client.send(EndTxnRequest("id", producer.producer_id, producer.epoch, True), 5)
        await broker.stop()
        assert (await client.receive(ApiVersionsResponse, 3)).error_code == 0
        assert (await client.receive(FetchResponse, 4)).error_code == 0
        broker.files.faults.clear()
        await broker.start()
        await trio.sleep(10)
        reader = CommittedReader("t", 1)
        await reader.poll(broker.connect())
        assert list(reader.values.values()) == [b"w"]


def test_the_markers_of_many_partitions_let_others_run_in_between() -> None:
    """27 bytes that end a transaction over 20,000 partitions held up everybody for seconds."""
    many = 3 * SLICE_STEPS_MAX

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = await begun(broker, CLASSIC, many)
            await producer.send("t", 0, [b"v"], broker.clock.now_ms())
            await producer.add("t", *range(1, many))
            counts = [0]
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    while counts[-1] < many:
                        counts.append(sum(log.log_end_offset > 0 for log in broker.node.logs.logs.values()))
                        await trio.lowlevel.checkpoint()

                nursery.start_soon(watch)
                await producer.end(commit=True)
            steps = [later - earlier for earlier, later in itertools.pairwise(counts)]
            assert 0 < max(steps) <= SLICE_STEPS_MAX + AT_ONCE

    run()
