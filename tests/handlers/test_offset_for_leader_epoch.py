"""OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.common.batches import batch
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_where_an_epoch_ends() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await produce(client, "a", batch(4))

        async def call(epoch: int, current: int = -1, partition: int = 0) -> Any:
            rows = [OffsetForLeaderTopic("a", [OffsetForLeaderPartition(partition, current, epoch)])]
            response = await client.call(
                OffsetForLeaderEpochRequest(-2, rows), 4, OffsetForLeaderEpochResponse
            )
            return response.topics[0].partitions[0]

        row = await call(0)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 4)
        row = await call(5)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)
        assert (await call(0, current=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await call(0, partition=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
