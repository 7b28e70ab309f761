"""WriteTxnMarkers: rows by producer and topic; markers in the partition of a group decide its pending offsets."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import CLASSIC, GROUP, Link, TransactionalProducer, committed_offset


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_marker_decides_a_groups_pending_offsets(commit: bool, flushed: bool) -> None:
    @simulated
    async def run() -> None:
        config = {"log.flush.interval.messages": "1"} if flushed else {}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            producer = TransactionalProducer(Link(client), "id", CLASSIC)
            await producer.init()
            await producer.find("g", GROUP)
            await producer.send_offset("g", "t", 0, 7)
            partition = broker.node.groups.runtime.partition_for("g")
            topics = [
                WritableTxnMarkerTopic("__consumer_offsets", [partition]),
                WritableTxnMarkerTopic("unknown", [0]),
            ]
            marker = WritableTxnMarker(producer.producer_id, producer.epoch, commit, topics, 0)
            response = await client.call(WriteTxnMarkersRequest([marker]), 2, WriteTxnMarkersResponse)
            [row] = response.markers
            assert [topic.partitions[0].error_code for topic in row.topics] == [
                0,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert await committed_offset(Link(client), "g", "t", 0) == (7 if commit else -1)

    run()


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (7, -1)])
def test_a_marker_of_no_producer_is_refused(producer_id: int, epoch: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            marker = WritableTxnMarker(producer_id, epoch, True, [WritableTxnMarkerTopic("t", [0])], 0)
            response = await client.call(WriteTxnMarkersRequest([marker]), 2, WriteTxnMarkersResponse)
            [topic] = response.markers[0].topics
            assert [row.error_code for row in topic.partitions] == [ErrorCode.INVALID_REQUEST]
            assert broker.node.cluster.leader_partition("t", 0).log.log_end_offset == 0

    run()
