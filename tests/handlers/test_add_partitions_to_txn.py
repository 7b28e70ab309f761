"""AddPartitionsToTxn: one transaction from a client, several from a broker; all partitions or none."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


def rows(topics: list[Any]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in topics
        for row in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(4))
def test_a_partition_that_is_not_there_refuses_all(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", 2)
            producer = TransactionalProducer(Link(client), "id")
            await producer.init()

            async def add(epoch: int, *partitions: int) -> dict[tuple[str, int], int]:
                topics = [AddPartitionsToTxnTopic("t", list(partitions))]
                request = AddPartitionsToTxnRequest([], "id", producer.producer_id, epoch, topics)
                response = await client.call(request, version, AddPartitionsToTxnResponse)
                return rows(response.results_by_topic_v3_and_below)

            assert await add(0, 0, 2) == {
                ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
                ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
            assert await add(7, 0) == {("t", 0): fenced}
            assert await add(0, 0, 1, 0) == {("t", 0): 0, ("t", 1): 0}
            shard = broker.node.transactions.shard("id")
            assert shard.transactions["id"].metadata.partitions == {"t": (0, 1)}

    run()


@pytest.mark.parametrize("flushed", [False, True])
def test_several_transactions_each_on_its_own(flushed: bool) -> None:
    @simulated
    async def run() -> None:
        config = {"log.flush.interval.messages": "1"} if flushed else {}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "t", 2)
            known = TransactionalProducer(Link(client), "known")
            await known.init()
            transactions = [
                AddPartitionsToTxnTransaction(
                    name, known.producer_id, known.epoch, verify, [AddPartitionsToTxnTopic("t", ids)]
                )
                for name, verify, ids in (("known", False, [0]), ("unknown", False, [0]), ("", False, [1]))
            ]
            response = await client.call(
                AddPartitionsToTxnRequest(transactions), 5, AddPartitionsToTxnResponse
            )
            assert [
                (one.transactional_id, rows(one.topic_results)) for one in response.results_by_transaction
            ] == [
                ("known", {("t", 0): 0}),
                ("unknown", {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
                ("", {("t", 1): ErrorCode.INVALID_REQUEST}),
            ]
            transactions[0].verify_only = True
            transactions[0].topics[0].partitions = [0, 1]
            response = await client.call(
                AddPartitionsToTxnRequest(transactions[:1]), 4, AddPartitionsToTxnResponse
            )
            [one] = response.results_by_transaction
            assert rows(one.topic_results) == {("t", 0): 0, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}

    run()
