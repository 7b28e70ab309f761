"""What races an end: writes that wait while it is taken, the time-out, another coordinator's markers.

Each is a case that `test_exactly_once` meets only by chance, or that was wrong once.
"""

from __future__ import annotations

import pytest
import trio

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
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
    TransactionEndedError,
    Versions,
)


@simulated
async def test_a_write_that_waits_while_its_transaction_ends_opens_none() -> None:
    """One partition has the transaction open, the other must be verified. Both are checked again after the wait.

    Found by review: the first was written behind its marker, and hung.
    """
    async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
        client = broker.connect()
        await create_topic(client, "t", 2)
        producer = TransactionalProducer(Link(client), "id", CLASSIC)
        await producer.init()
        await producer.send("t", 0, [b"first"], broker.clock.now_ms())
        now = broker.clock.now_ms()
        topics = [producer.produce_request("t", index, [b"late"], now).topic_data[0] for index in range(2)]
        ending, writing = broker.connect(), broker.connect()
        broker.files.latency_s = 1
        await ending.send(EndTxnRequest("id", producer.producer_id, producer.epoch, True), 3)
        await trio.sleep(0.1)
        await writing.send(ProduceRequest("id", -1, 30_000, topics), 9)
        response = await writing.receive(ProduceResponse, 9)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        # To be tried again while the markers are under way; then it is too late.
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
        assert (await ending.receive(EndTxnResponse, 3)).error_code == 0
        await trio.sleep(10)
        broker.files.latency_s = 0
        response = await client.call(ProduceRequest("id", -1, 30_000, topics), 9, ProduceResponse)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [ErrorCode.INVALID_TXN_STATE] * 2
        for partition in range(2):
            reader = CommittedReader("t", partition)
            while await reader.poll(client):
                pass
            assert reader.position == reader.high_watermark == reader.last_stable_offset
            assert list(reader.values.values()) == ([b"first"] if partition == 0 else [])


@simulated
async def test_a_write_to_a_partition_that_is_recovered_meanwhile_is_refused() -> None:
    """Its first use finds it being recovered, and recovers the rest: the second, in the same step, finds it there.

    Found by a stock client's own tests while the broker was killed: the partition was written to and no part of the
    transaction, which ended without a marker there; the next one's batches joined what was left open.
    """
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(client), "id", V2)
        await producer.init()
        await producer.send("t", 0, [b"first"], broker.clock.now_ms())
        await producer.end(commit=True)
        client = await broker.restart()
        producer.link = Link(client)
        await producer.find("id", 1)
        logs = broker.node.logs
        get, recovering = logs.get, [("t", 0)]

        def get_at_second_use(topic: str, partition: int) -> PartitionLog:
            if (topic, partition) in recovering:
                recovering.remove((topic, partition))
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return get(topic, partition)

        logs.get = get_at_second_use  # type: ignore[method-assign]
        request = producer.produce_request("t", 0, [b"second"], broker.clock.now_ms())
        response = await client.call(request, V2.produce, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not recovering
        await producer.send("t", 0, [b"second"], broker.clock.now_ms())
        await producer.end(commit=False)
        reader = CommittedReader("t", 0)
        while await reader.poll(client):
            pass
        assert reader.position == reader.high_watermark == reader.last_stable_offset
        assert list(reader.values.values()) == [b"first"]


@simulated
async def test_a_refused_batch_comes_first_even_if_the_next_continues_the_last_sequence() -> None:
    """Of two batches the first was refused, its partition being no part of the transaction: the second waits for it.

    Found by a random walk beside Kafka: a batch that simply follows its producer's last was not looked at.
    """
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(client), "id", CLASSIC)
        await producer.init()
        await producer.send("t", 0, [b"v"] * 4, broker.clock.now_ms())
        await producer.end(commit=True)

        async def send(sequence: int) -> ErrorCode:
            producer.sequences["t", 0] = sequence
            request = producer.produce_request("t", 0, [b"w"], broker.clock.now_ms())
            response = await client.call(request, 9, ProduceResponse)
            return ErrorCode(response.responses[0].partition_responses[0].error_code)

        assert await send(1) is ErrorCode.INVALID_TXN_STATE
        await producer.add("t", 0)
        assert await send(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


INTERVAL_MS = 500
TIMEOUT_MS = 2_000


@pytest.mark.parametrize("versions", [CLASSIC, V2])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_and_the_time_out_race(versions: Versions, flushed: bool, level: int) -> None:
    """A commit arrives around the time-out of the transaction. The first of them decides, and the response shows it."""
    outcomes: set[ErrorCode] = set()

    async def one(offset_ms: int) -> None:
        config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(INTERVAL_MS)}
        if flushed:
            config["log.flush.interval.messages"] = "1"
        async with SimBroker(offset_ms + 1_000, config) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            update = FeatureUpdateKey("transaction.version", level, upgrade_type=2)
            await client.call(UpdateFeaturesRequest(1000, [update]), 1, UpdateFeaturesResponse)
            producer = TransactionalProducer(Link(client), "id", versions, timeout_ms=TIMEOUT_MS)
            await producer.init()
            begun_ms = broker.clock.now_ms()
            await producer.send("t", 0, [b"v"], begun_ms)
            # The first look after the time-out.
            look_ms = begun_ms + TIMEOUT_MS + 1
            look_ms += -look_ms % INTERVAL_MS
            broker.files.latency_s = 0.004 if flushed else 0
            await trio.sleep((look_ms + offset_ms - broker.clock.now_ms()) / 1000)
            told = ErrorCode.NONE
            try:
                await producer.end(commit=True)
            except TransactionEndedError as error:
                told = error.code
            outcomes.add(told)
            await trio.sleep(1)
            reader = CommittedReader("t", 0)
            while await reader.poll(client):
                pass
            assert reader.position == reader.high_watermark == reader.last_stable_offset
            assert list(reader.values.values()) == ([] if told else [b"v"])
            await producer.init()
            await producer.send("t", 0, [b"next"], broker.clock.now_ms())
            await producer.end(commit=True)

    @simulated
    async def run() -> None:
        for offset_ms in (-10, -3, -1, 0, 1, 3, 10):
            await one(offset_ms)

    run()
    # With transactions v2 a request that repeats another decision looks like this (KIP-890).
    refused = ErrorCode.INVALID_TXN_STATE if versions is V2 else ErrorCode.PRODUCER_FENCED
    assert outcomes == {ErrorCode.NONE, refused}


@pytest.mark.parametrize("newer_first", [True, False])
@pytest.mark.parametrize("versions", [CLASSIC, V2])
def test_markers_of_two_coordinators_meet_in_the_partitions(versions: Versions, newer_first: bool) -> None:
    """One that was replaced still writes markers, in another order than its successor: a partition has the outcome of
    whoever came with the higher epoch, and takes nothing of the other after that.
    """

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", 2)
            producer = TransactionalProducer(Link(client), "id", versions)
            await producer.init()

            async def mark(partition: int, coordinator_epoch: int, *, commit: bool) -> int:
                marker = WritableTxnMarker(
                    producer.producer_id,
                    producer.epoch + versions.is_v2,
                    commit,
                    [WritableTxnMarkerTopic("t", [partition])],
                    coordinator_epoch,
                    2 if versions.is_v2 else 0,
                )
                response = await client.call(WriteTxnMarkersRequest([marker]), 2, WriteTxnMarkersResponse)
                return int(response.markers[0].topics[0].partitions[0].error_code)

            for partition in range(2):
                await producer.send("t", partition, [b"v"], broker.clock.now_ms())
            # Both finish the same decision, each partition by partition.
            order = [(0, 7), (0, 6), (1, 6), (1, 7)] if newer_first else [(0, 6), (1, 7), (0, 7), (1, 6)]
            taken = []
            for partition, epoch in order:
                code = await mark(partition, epoch, commit=True)
                taken.append(ErrorCode(code))
            late = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert taken == [0, late, 0, 0] if newer_first else taken == [0, 0, 0, late]
            for partition in range(2):
                reader = CommittedReader("t", partition)
                while await reader.poll(client):
                    pass
                assert reader.position == reader.high_watermark == reader.last_stable_offset
                assert list(reader.values.values()) == [b"v"]
            # The next decision of the older one is refused as well.
            assert await mark(0, 6, commit=False) == late

    run()
