"""DeleteRecords: the log start offset is durable when the response is sent."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.common.batches import batch
from tests.harness.requests import EARLIEST, create_topic, fetch, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated


async def delete(client: SimClient, topic: str, offset: int, partition: int = 0) -> Any:
    request = DeleteRecordsRequest(
        [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])], 1000
    )
    response = await client.call(request, 2, DeleteRecordsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("crash", ["process", "power"])
def test_an_acknowledged_deletion_survives_a_crash(crash: Any) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
            client = broker.connect()
            await create_topic(client, "a")
            await produce(client, "a", batch(5))
            row = await delete(client, "a", 3)
            assert (row.error_code, row.low_watermark) == (0, 3)
            await broker.crash(crash)
            await broker.start()
            client = broker.connect()
            await broker.node.logs.recovered()
            assert (await list_offset(client, "a", EARLIEST)).offset == 3
            assert (await fetch(client, "a", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            row = await delete(client, "a", -1)
            assert row.low_watermark == 5

    run()


@simulated
async def test_refusals() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await create_topic(client, "c", configs={"cleanup.policy": "compact"})
        assert (await delete(client, "a", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete(client, "a", -2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete(client, "b", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await delete(client, "c", 0)).error_code == ErrorCode.POLICY_VIOLATION
