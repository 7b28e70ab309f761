"""AddOffsetsToTxn: the group's partition becomes part of the transaction; errors by version."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


@pytest.mark.parametrize("version", range(5))
def test_each_version(version: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            producer = TransactionalProducer(Link(client), "id")
            await producer.init()

            async def add(name: str, epoch: int) -> int:
                request = AddOffsetsToTxnRequest(name, producer.producer_id, epoch, "g")
                response = await client.call(request, version, AddOffsetsToTxnResponse)
                return int(response.error_code)

            fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
            assert await add("id", 5) == fenced
            assert await add("", 0) == ErrorCode.INVALID_REQUEST
            assert await add("id", 0) == 0
            partition = broker.node.groups.runtime.partition_for("g")
            metadata = broker.node.transactions.shard("id").transactions["id"].metadata
            assert metadata.partitions == {"__consumer_offsets": (partition,)}

    run()
