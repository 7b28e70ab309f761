"""Fills shards of a simulated broker from inside, because a million commits over the wire take too long."""

from __future__ import annotations

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.stored.groups import OffsetCommitKey, OffsetCommitValue
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient

OFFSETS_TOPIC = "__consumer_offsets"
ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
BATCH = 1_000


async def find(client: SimClient, group: str = "g") -> None:
    """Let the broker create the offsets topic."""
    response = await client.call(FindCoordinatorRequest(group, 0), 1, FindCoordinatorResponse)
    assert response.error_code == 0, response


def fill(broker: SimBroker, group: str, count: int, topic: str = "a") -> None:
    """Commit an offset for each of so many partitions. The offset is the partition's number."""
    shard = broker.node.groups.shard(group)
    for first in range(0, count, BATCH):
        records = [
            CoordinatorRecord(OffsetCommitKey(group, topic, number), OffsetCommitValue(number), 3)
            for number in range(first, min(first + BATCH, count))
        ]
        shard.commit(records)


def log_of(broker: SimBroker, partition: int = 0) -> PartitionLog:
    return broker.node.cluster.leader_partition(OFFSETS_TOPIC, partition).log
