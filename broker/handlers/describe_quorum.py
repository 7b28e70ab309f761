"""DescribeQuorum (API key 55): who leads the cluster's metadata: this node.

- Exactly the one partition of ``__cluster_metadata`` must be asked for.
- No endpoint of a controller is told: there is none to reach.

Source: ``KafkaRaftClient.handleDescribeQuorumRequest``, ``RaftUtil``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.errors import ErrorCode
from wire.messages import describe_quorum as messages
from wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDescription,
    ReplicaState,
    TopicDescription,
)

if TYPE_CHECKING:
    from broker.node import Node
    from broker.request import RequestContext

NODES_VERSION = 2
METADATA_TOPIC = "__cluster_metadata"


def handle(node: Node, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, [row.partition_index for row in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = [
            TopicDescription(
                name, [PartitionDescription(index, unknown, "It has no quorum.") for index in indexes]
            )
            for name, indexes in asked
        ]
        return DescribeQuorumResponse(topics=rows)
    node_id, metadata, now_ms = node.config.node_id, node.metadata, node.clock.now_ms()
    end_offset = metadata.end_offset
    voter = ReplicaState(node_id, log_end_offset=end_offset)
    voter.last_fetch_timestamp = voter.last_caught_up_timestamp = now_ms
    partition = PartitionDescription(
        0, leader_id=node_id, leader_epoch=metadata.epoch, high_watermark=end_offset, current_voters=[voter]
    )
    answer = DescribeQuorumResponse(topics=[TopicDescription(METADATA_TOPIC, [partition])])
    if context.api_version >= NODES_VERSION:
        answer.nodes.append(messages.Node(node_id))
    return answer
