"""AlterReplicaLogDirs: a replica stays in the one directory; replicas on nodes of a former cluster cannot move."""

from __future__ import annotations

from typing import Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated


async def alter(client: SimClient, *moves: tuple[str, str, list[int]]) -> dict[str, dict[int, int]]:
    """The error codes by topic and partition; each move is of a directory, a topic, its partitions."""
    dirs = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, rows)]) for path, topic, rows in moves]
    response: Any = await client.call(AlterReplicaLogDirsRequest(dirs), 2, AlterReplicaLogDirsResponse)
    return {
        topic.topic_name: {row.partition_index: row.error_code for row in topic.partitions}
        for topic in response.results
    }


@simulated
async def test_the_last_directory_named_for_a_partition_counts() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 3)
        moves = [("/elsewhere", "a", [0, 1]), (DATA_DIR, "b", [0]), (DATA_DIR, "a", [1, 5])]
        not_found, unknown = ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(client, *moves) == {"a": {0: not_found, 1: 0, 5: unknown}, "b": {0: unknown}}
        # The request neither opens nor creates a log.
        assert broker.node.logs.logs == {}


@simulated
async def test_a_replica_that_is_on_other_nodes_only() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a", 2)
        broker.node.metadata.commit([PartitionChangeRecord(1, topic_id, replicas=[2], isr=[2], leader=2)])
        found = await alter(client, (DATA_DIR, "a", [0, 1]))
        assert found == {"a": {0: 0, 1: ErrorCode.REPLICA_NOT_AVAILABLE}}


@simulated
async def test_the_directory_is_named_by_its_absolute_path() -> None:
    """As in Kafka: tools take it from DescribeLogDirs."""
    async with SimBroker(config={"log.dirs": "data//"}) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        response = await client.call(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)
        assert [result.log_dir for result in response.results] == [DATA_DIR]
        moves = [("data//", "a", [0])], [(DATA_DIR, "a", [0])]
        found = [await alter(client, *move) for move in moves]
        assert found == [{"a": {0: ErrorCode.LOG_DIR_NOT_FOUND}}, {"a": {0: 0}}]


@simulated
async def test_a_log_that_is_offline() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        await produce(client, "a")
        broker.node.logs.get("a", 0).fail(OSError("the disk is gone"))
        found = await alter(client, (DATA_DIR, "a", [0, 1]))
        assert found == {"a": {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}}
