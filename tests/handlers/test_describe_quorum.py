"""DescribeQuorum: one voter, which has read the whole log."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.harness.metadata_node import StandInNode

METADATA = "__cluster_metadata"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_this_node_leads(version: int) -> None:
    node = StandInNode()
    request = DescribeQuorumRequest([TopicData(METADATA, [PartitionData(0)])])
    before = node.call(request, version).topics[0].partitions[0]
    node.call(CreateTopicsRequest([CreatableTopic("t", 3, 1)]), 7)
    response = node.call(request, version)
    [partition] = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
    assert partition.high_watermark == before.high_watermark + 4 == node.metadata.image.offset + 1
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert voter.last_caught_up_timestamp == (node.clock.now_ms() if version else -1)
    assert not partition.observers
    assert [one.node_id for one in response.nodes] == ([1] if version >= 2 else [])


@pytest.mark.parametrize(
    "asked", [[], [(METADATA, [1])], [(METADATA, [0, 0])], [(METADATA, [0]), ("t", [0])]]
)
def test_no_other_partition_has_a_quorum(asked: list[tuple[str, list[int]]]) -> None:
    rows = [TopicData(name, [PartitionData(index) for index in indexes]) for name, indexes in asked]
    response = StandInNode().call(DescribeQuorumRequest(rows), 2)
    found = [
        (topic.topic_name, [row.partition_index for row in topic.partitions]) for topic in response.topics
    ]
    assert found == asked
    codes = {row.error_code for topic in response.topics for row in topic.partitions}
    assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
