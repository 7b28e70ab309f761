"""DescribeQuorum (API key 55): describes the quorum of the cluster's metadata, which is this node.

- The request must name the one partition of ``__cluster_metadata``, and no other.
- The response has no controller endpoints, since no controller can be reached.

Source: ``KafkaRaftClient.handleDescribeQuorumRequest``, ``RaftUtil``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata.store import store_of
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import describe_quorum as messages
from oncelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDescription,
    ReplicaState,
    TopicDescription,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext

NODES_VERSION = DIRECTORIES_VERSION = 2


def handle(
    services: Services, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse | Pending[DescribeQuorumResponse]:
    if not _names_metadata_only(request):
        response = DescribeQuorumResponse()
        rows = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
        return chunked(_unknown(request, response.topics), rows, response)
    node_id, metadata, now_ms = (
        services.config.current.node_id,
        store_of(services.metadata),
        services.clock.now_ms(),
    )
    end_offset = metadata.end_offset
    voter = ReplicaState(node_id, log_end_offset=end_offset)
    voter.last_fetch_timestamp = voter.last_caught_up_timestamp = now_ms
    partition = PartitionDescription(
        0, leader_id=node_id, leader_epoch=metadata.epoch, high_watermark=end_offset, current_voters=[voter]
    )
    partition.observers = metadata.observers()
    if context.api_version < DIRECTORIES_VERSION:
        for observer in partition.observers:
            observer.replica_directory_id = ZERO_UUID
    response = DescribeQuorumResponse(topics=[TopicDescription(CLUSTER_METADATA_TOPIC, [partition])])
    if context.api_version >= NODES_VERSION:
        response.nodes.append(messages.Node(node_id))
    return response


def _names_metadata_only(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or request.topics[0].topic_name != CLUSTER_METADATA_TOPIC:
        return False
    return [partition.partition_index for partition in request.topics[0].partitions[:2]] == [0]


def _unknown(request: DescribeQuorumRequest, topics: list[TopicDescription]) -> Iterator[None]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic in request.topics:
        described = TopicDescription(topic.topic_name)
        topics.append(described)
        for partition in topic.partitions:
            described.partitions.append(
                PartitionDescription(partition.partition_index, code, "It has no quorum.")
            )
            yield
        yield
