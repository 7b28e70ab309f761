"""DescribeLogDirs."""

from __future__ import annotations

from oncelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_sizes_of_all_or_of_some() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        await create_topic(client, "b")
        await produce(client, "a", partition=1)
        response = await client.call(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)
        [directory] = response.results
        assert (directory.error_code, directory.log_dir) == (0, DATA_DIR)
        assert directory.total_bytes >= directory.usable_bytes > 0
        sizes = {
            (topic.name, row.partition_index): row.partition_size > 0
            for topic in directory.topics
            for row in topic.partitions
        }
        assert sizes == {("a", 0): False, ("a", 1): True, ("b", 0): False}
        some = DescribeLogDirsRequest(
            [DescribableLogDirTopic("a", [1, 7]), DescribableLogDirTopic("no", [0])]
        )
        response = await client.call(some, 4, DescribeLogDirsResponse)
        assert [
            (topic.name, [row.partition_index for row in topic.partitions])
            for topic in response.results[0].topics
        ] == [("a", [1])]
