"""DescribeProducers, and WriteTxnMarkers: finding and ending a transaction that hangs (KIP-664)."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import CLASSIC, CommittedReader, Link, TransactionalProducer


async def producers(client: SimClient, topic: str, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest([TopicRequest(topic, [partition])])
    response = await client.call(request, 0, DescribeProducersResponse)
    row: PartitionResponse = response.topics[0].partitions[0]
    return row


@pytest.mark.parametrize("flushed", [False, True])
def test_a_hanging_transaction_is_found_and_aborted(flushed: bool) -> None:
    """A transaction that its coordinator does not know: written without verification."""

    @simulated
    async def run() -> None:
        config = {"transaction.partition.verification.enable": "false"}
        if flushed:
            config["log.flush.interval.messages"] = "1"
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            producer = TransactionalProducer(Link(client), "id", CLASSIC)
            await producer.init()
            producer.added.add(("t", 0))
            await producer.send("t", 0, [b"hangs"], broker.clock.now_ms())
            [found] = (await producers(client, "t")).active_producers
            assert (found.producer_id, found.producer_epoch, found.last_sequence) == (
                producer.producer_id,
                0,
                0,
            )
            assert found.current_txn_start_offset == 0
            described = await client.call(
                DescribeTransactionsRequest(["id"]), 0, DescribeTransactionsResponse
            )
            assert described.transaction_states[0].transaction_state == "Empty"
            marker = WritableTxnMarker(
                found.producer_id,
                found.producer_epoch,
                False,
                [WritableTxnMarkerTopic("t", [0, 1])],
                found.coordinator_epoch,
            )
            response = await client.call(WriteTxnMarkersRequest([marker]), 1, WriteTxnMarkersResponse)
            rows = response.markers[0].topics[0].partitions
            assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            [found] = (await producers(client, "t")).active_producers
            assert found.current_txn_start_offset == -1
            reader = CommittedReader("t", 0)
            await reader.poll(client)
            assert reader.position == reader.high_watermark == 2
            assert not reader.values

    run()


@simulated
async def test_unknown_partitions() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        assert (await producers(client, "t")).active_producers == []
        for topic, partition, code in (
            ("t", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ):
            assert (await producers(client, topic, partition)).error_code == code
