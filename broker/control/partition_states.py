"""`partition_states`: the partitions of a topic with their replicas, of one node or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control.names import not_found
from oncelog.broker.control.types import PartitionState, ReplicaInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.node.node import Node


def partition_states(image: MetadataImage, topic: str, running: Mapping[int, Node]) -> list[PartitionState]:
    """Return the partitions of a topic. ``running`` are the nodes that run, by id. Raises NotFoundError."""
    found = image.topics.get(topic)
    if found is None:
        raise not_found("topic", topic, image.topics)
    return [
        PartitionState(
            partition=index,
            leader=None if state.leader < 0 else state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple(state.isr),
            elr=tuple(state.eligible_leader_replicas),
            replicas=tuple(
                _replica(node_id, running.get(node_id), topic, index) for node_id in state.replicas
            ),
        )
        for index, state in enumerate(found.partitions)
    ]


def _replica(node_id: int, node: Node | None, topic: str, index: int) -> ReplicaInfo:
    if node is None:
        return ReplicaInfo(node_id, is_running=False)
    log = node.logs.logs.get((topic, index))
    if log is None:  # nobody has used it yet
        return ReplicaInfo(node_id)
    return ReplicaInfo(
        node_id,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
    )
