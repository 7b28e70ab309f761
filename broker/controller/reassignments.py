"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move to other brokers.

A reassignment is in the partition itself: ``replicas`` are the wanted ones, then those that will go; ``adding`` and
``removing`` tell which are which. From there on the replicas that are added fetch, the leader asks for an ISR with
them (`isr`), and that change ends the reassignment (`partition_change`, step 1). To cancel it is to take the added
replicas away again. Source: Kafka's ``ReplicationControlManager``, ``PartitionReassignmentReplicas``,
``PartitionReassignmentRevert``; KIP-455, KIP-860.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.controller.partition_change import Election, TopicRules, change_partition
from oncelog.broker.metadata.placement import check_replicas
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage, Partition, Topic
    from oncelog.wire.messages.alter_partition_reassignments import ReassignablePartition
    from oncelog.wire.stored.metadata import PartitionChangeRecord


def reassign(
    image: MetadataImage,
    config: BrokerConfig,
    name: str,
    wanted: ReassignablePartition,
    *,
    may_change_count: bool,
) -> PartitionChangeRecord | None:
    """Return the record that begins, changes or cancels the reassignment of a partition, or None if there is nothing to
    do. ``config``: as in `TopicRules.of`. Raises KafkaError, with Kafka's text.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = wanted.partition_index
    if not 0 <= index < len(topic.partitions):
        text = f"Unable to find partition {name}:{index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    state = topic.partitions[index]
    if wanted.replicas is None:
        return _cancel(image, config, topic, index)
    check_replicas(image, wanted.replicas)
    if not may_change_count and len(wanted.replicas) != (count := _replica_count(state)):
        text = f"The replication factor is changed from {count} to {len(wanted.replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    removing = sorted(set(state.replicas).difference(wanted.replicas))
    adding = sorted(set(wanted.replicas).difference(state.replicas))
    # Kafka, too, passes an empty list as None, for unchanged: a reassignment that adds nothing any more keeps its
    # ``adding``.
    return change_partition(
        image,
        topic,
        index,
        TopicRules.of(image, config, topic),
        replicas=[*wanted.replicas, *removing],
        removing=removing or None,
        adding=adding or None,
    )


def _cancel(
    image: MetadataImage, config: BrokerConfig, topic: Topic, index: int
) -> PartitionChangeRecord | None:
    state = topic.partitions[index]
    if not is_moving(state):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    rules = TopicRules.of(image, config, topic)
    replicas = [replica for replica in state.replicas if replica not in state.adding_replicas]
    isr = [replica for replica in state.isr if replica not in state.adding_replicas]
    if not isr:
        if not replicas:
            text = "Invalid replica assignment: addingReplicas contains all replicas."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if rules.election is not Election.UNCLEAN:
            text = (
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an "
                "unclean leader election."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    return change_partition(
        image,
        topic,
        index,
        rules,
        election=rules.election,
        isr=isr,
        replicas=replicas,
        removing=[],
        adding=[],
    )


def is_moving(state: Partition) -> bool:
    """Whether a reassignment of the partition is under way."""
    return bool(state.adding_replicas or state.removing_replicas)


def ongoing(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
    """Return those of the partitions that are moving. There need not be partitions with these indexes."""
    return OngoingTopicReassignment(
        topic.name,
        [
            OngoingPartitionReassignment(
                index, list(state.replicas), list(state.adding_replicas), list(state.removing_replicas)
            )
            for index in indexes
            if 0 <= index < len(topic.partitions) and is_moving(state := topic.partitions[index])
        ],
    )


def _replica_count(state: Partition) -> int:
    """Return how many replicas the partition has, or will have once its reassignment is over."""
    return len({*state.replicas, *state.adding_replicas}.difference(state.removing_replicas))
