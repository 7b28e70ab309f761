"""ListOffsets: special timestamps and times."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.common.batches import batch, record
from tests.harness.requests import EARLIEST, LATEST, create_topic, list_offset, produce
from tests.harness.sim_broker import EPOCH_MS, SimBroker
from tests.harness.simulation import simulated

TIMES = [EPOCH_MS + delta for delta in (100, 300, 200, 300, 400)]


@simulated
async def test_places_and_times() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        assert (await list_offset(client, "a", LATEST)).offset == 0
        assert (await list_offset(client, "a", TIMES[0])).offset == -1
        for time in TIMES:
            await produce(client, "a", batch([record()], base_timestamp=time))
        assert (await list_offset(client, "a", EARLIEST)).offset == 0
        assert (await list_offset(client, "a", LATEST)).offset == 5
        for asked, offset in ((0, 0), (100, 0), (101, 1), (300, 1), (301, 4), (400, 4), (401, -1)):
            row = await list_offset(client, "a", EPOCH_MS + asked)
            assert row.offset == offset, asked
            assert row.timestamp == (TIMES[offset] if offset >= 0 else -1)
        latest_time = await list_offset(client, "a", -3)
        assert (latest_time.offset, latest_time.timestamp) == (4, TIMES[4])


@pytest.mark.parametrize(
    ("timestamp", "version", "supported"),
    [(-3, 6, False), (-3, 7, True), (-4, 7, False), (-4, 8, True), (-5, 8, False), (-5, 9, True), (-6, 10, False),
     (-6, 11, True), (-7, 11, False)],
)  # fmt: skip
def test_each_special_timestamp_has_its_first_version(timestamp: int, version: int, supported: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a")
            rows = [ListOffsetsTopic("a", [ListOffsetsPartition(0, -1, timestamp)])]
            response = await client.call(ListOffsetsRequest(-1, 0, rows), version, ListOffsetsResponse)
            code = response.topics[0].partitions[0].error_code
            assert code == (0 if supported else ErrorCode.UNSUPPORTED_VERSION)

    run()


@simulated
async def test_a_partition_requested_twice_is_refused() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        rows = [ListOffsetsPartition(index, -1, LATEST) for index in (0, 1, 0)]
        response = await client.call(
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic("a", rows)]), 7, ListOffsetsResponse
        )
        codes = [row.error_code for row in response.topics[0].partitions]
        assert codes == [ErrorCode.INVALID_REQUEST, 0]
