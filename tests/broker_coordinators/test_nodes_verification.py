"""A write that another node's coordinator has verified, while a marker comes (Kafka: ``VerificationGuard``)."""

from __future__ import annotations

import pytest
import trio

from oncelog.wire.control import ABORT_MARKER
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.wire.messages.produce import ProduceResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import TRANSACTIONS_TOPIC
from tests.broker_coordinators.test_nodes_transactions import (
    COORDINATOR,
    DATA_NODE,
    GROUP_NODE,
    committed_values,
    markers,
    three_nodes,
)
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    ABORTABLE,
    CLASSIC,
    V2,
    TransactionalProducer,
    Versions,
    committed_offset,
)


@pytest.mark.parametrize("versions", [CLASSIC, V2])
def test_a_batch_is_refused_if_its_transaction_has_ended_since_the_question(versions: Versions) -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, link):
            nodes.create_topic("other", [COORDINATOR])
            producer = TransactionalProducer(link, "id", versions)
            await producer.init()
            await producer.send("other", 0, [b"x"], nodes.clock.now_ms())
            if not versions.is_v2:
                await producer.add("t", 0)
            # The answer of the coordinator is under way for long, and the marker overtakes it.
            answer = nodes.hold(AddPartitionsToTxnRequest, answers=True)
            late = link.nodes.connect(DATA_NODE)
            await late.send(producer.produce_request("t", 0, [b"a"], nodes.clock.now_ms()), versions.produce)
            await trio.sleep(1)
            await producer.end(commit=False)
            while not markers(nodes, "t"):
                await trio.sleep(0.01)
            answer.set()
            response = await late.receive(ProduceResponse, versions.produce)
            [row] = response.responses[0].partition_responses
            assert row.error_code == ErrorCode.INVALID_TXN_STATE
            assert markers(nodes, "t") == [ABORT_MARKER]
            assert nodes.log("t", 0).log_end_offset == 1

    run()


def test_offsets_are_refused_if_their_transaction_has_ended_since_the_question() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, link):
            producer = TransactionalProducer(link, "id", CLASSIC)
            await producer.init()
            await producer.send("t", 0, [b"x"], nodes.clock.now_ms())
            await producer.send_offset("other", "t", 0, 1)  # in the same partition of the offsets' topic
            await producer.end(commit=True)
            await committed_offset(link, "other", "t", 0)
            await producer.send("t", 0, [b"y"], nodes.clock.now_ms())
            answer = nodes.hold(AddPartitionsToTxnRequest, answers=True)
            late = nodes.connect(GROUP_NODE)
            request = TxnOffsetCommitRequest(
                "id",
                "g",
                producer.producer_id,
                producer.epoch,
                topics=[TxnOffsetCommitRequestTopic("t", ZERO_UUID, [TxnOffsetCommitRequestPartition(0, 7)])],
            )
            await late.send(request, 3)
            await trio.sleep(1)
            await producer.end(commit=True)
            await trio.sleep(1)
            answer.set()
            response = await late.receive(TxnOffsetCommitResponse, 3)
            assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
            assert await committed_offset(link, "g", "t", 0) == -1

    run()


@pytest.mark.parametrize(
    ("versions", "code"),
    [(CLASSIC, ErrorCode.INVALID_TXN_STATE), (ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_partition_that_was_not_added_is_refused(versions: Versions, code: ErrorCode) -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, link):
            producer = TransactionalProducer(link, "id", versions)
            await producer.init()
            request = producer.produce_request("t", 0, [b"a"], nodes.clock.now_ms())
            response = await link.call(request, versions.produce, ProduceResponse)
            assert response.responses[0].partition_responses[0].error_code == code

    run()


def test_a_producer_waits_while_its_coordinator_is_cut_off_or_moves() -> None:
    @simulated
    async def run() -> None:
        async with three_nodes() as (nodes, link):
            producer = TransactionalProducer(link, "id", V2)
            await producer.init()
            request = producer.produce_request("t", 0, [b"a"], nodes.clock.now_ms())
            nodes.network.cut(DATA_NODE, COORDINATOR)
            response = await link.call(request, V2.produce, ProduceResponse)
            [row] = response.responses[0].partition_responses
            assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert row.error_message == (
                "Unable to verify the partition has been added to the transaction. Underlying error: "
                "NETWORK_EXCEPTION"
            )
            nodes.elect(TRANSACTIONS_TOPIC, 0, -1)
            response = await link.call(request, V2.produce, ProduceResponse)
            [row] = response.responses[0].partition_responses
            assert "COORDINATOR_NOT_AVAILABLE" in str(row.error_message)
            nodes.elect(TRANSACTIONS_TOPIC, 0, COORDINATOR)
            nodes.network.heal()
            await producer.send("t", 0, [b"a"], nodes.clock.now_ms())
            await producer.end(commit=True)
            assert await committed_values(link) == [b"a"]

    run()
