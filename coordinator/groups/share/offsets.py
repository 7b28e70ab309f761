"""The steps of AlterShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups, as far as states are concerned.

Each says which states the broker is to change; a later step notes what was done. Source: Kafka's
``GroupMetadataManager``, ``alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``completeDeleteShareGroupOffsets``, ``shareGroupBuildPartitionDeleteRequest``, ``maybeCleanupShareGroupState``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.share import records
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.heartbeat import group_or_new, share_group
from oncelog.coordinator.groups.share.initialization import Initialization, beginning
from oncelog.coordinator.groups.share.state_partitions import (
    NO_STATE_PARTITIONS,
    StatePartitions,
    TopicState,
    combined,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from oncelog.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from oncelog.coordinator.groups.context import GroupContext, Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

UNKNOWN_TOPIC = "This server does not host this topic-partition."
NO_OFFSETS = "There is no offset information to delete."

Deletion = dict["Uuid", frozenset[int]]
"""Topic id -> the partitions whose states are to be deleted."""


class Wanted(NamedTuple):
    """``rows`` of the response; which ``states`` a request wants to have which start ``offsets``."""

    rows: list[AlterShareGroupOffsetsResponseTopic]
    states: dict[bytes, TopicState]
    offsets: dict[bytes, dict[int, int]]


def wanted(topics: Topics, asked: Iterable[AlterShareGroupOffsetsRequestTopic]) -> Steps[Wanted]:
    """Look at a topic of a request at each step."""
    rows, states, offsets = [], dict[bytes, TopicState](), dict[bytes, dict[int, int]]()
    for topic in asked:
        yield
        known = topics.by_name(topic.topic_name)
        count = 0 if known is None else len(known.partitions)
        partitions = [
            AlterShareGroupOffsetsResponsePartition(row.partition_index)
            if row.partition_index < count
            else AlterShareGroupOffsetsResponsePartition(
                row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
            )
            for row in topic.partitions
        ]
        row = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=partitions)
        rows.append(row)
        if known is None:
            continue
        row.topic_id = known.topic_id
        offsets[known.topic_id] = {
            row.partition_index: row.start_offset for row in topic.partitions if row.partition_index < count
        }
        states[known.topic_id] = TopicState(topic.topic_name, frozenset(offsets[known.topic_id]))
    return Wanted(rows, states, offsets)


def alter(shard: GroupShard, group_id: str, found: Wanted) -> Initialization | None:
    """Begin to set the start offsets of an empty group, which is created if there is none. Returns the states to
    initialize.

    Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and errors of the log.
    """
    group = group_or_new(shard, group_id)
    _check_empty(group)
    if not found.states:
        return None
    begun = beginning(shard.context, group, group.epoch, found.states, found.offsets)
    shard.commit([begun.record])
    return begun


class DeletedOffsets(NamedTuple):
    """``deletion``: the states to delete. ``errors``: rows of topics that have none."""

    deletion: Deletion
    errors: list[DeleteShareGroupOffsetsResponseTopic]


def delete(shard: GroupShard, group_id: str, names: Iterable[str]) -> DeletedOffsets:
    """Begin to delete the states of an empty group's topics.

    Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and errors of the log.
    """
    group = share_group(shard, group_id)
    _check_empty(group)
    present = group.state_partitions
    found = DeletedOffsets({}, [])
    if present is None:
        return found
    for name in dict.fromkeys(names):
        topic = shard.context.topics.by_name(name)
        if topic is None:
            found.errors.append(_no_topic(name, UNKNOWN_TOPIC))
        elif topic.topic_id in present.initialized:
            found.deletion[topic.topic_id] = present.initialized[topic.topic_id].partitions
        elif topic.topic_id in present.deleting:
            found.deletion[topic.topic_id] = frozenset(range(len(topic.partitions)))
        else:
            found.errors.append(_no_topic(name, NO_OFFSETS))
    _commit(shard, group, present.with_deleting(found.deletion))
    return found


def _no_topic(name: str, why: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=why
    )


def deleted(shard: GroupShard, group_id: str, topic_ids: Collection[Uuid]) -> None:
    """The states of these topics are deleted. Raises KafkaError if the append fails."""
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.state_partitions is not None:
        _commit(shard, group, group.state_partitions.without_deleting(topic_ids))


def delete_all(shard: GroupShard, group_id: str) -> Deletion:
    """Begin to delete all states of an empty group, also those whose deletion was begun before: the states to delete.

    Raises KafkaError: NON_EMPTY_GROUP, and errors of the log.
    """
    group = share_group(shard, group_id)
    _check_empty(group)
    present = group.state_partitions
    if present is None:
        return {}
    states = combined(present.initialized, present.initializing)
    states = combined(states, _existing(shard.context, present.deleting))
    _commit(shard, group, StatePartitions({}, {}, frozenset(states)))
    return {topic_id: topic.partitions for topic_id, topic in states.items()}


def _existing(context: GroupContext, topic_ids: Iterable[Uuid]) -> dict[Uuid, TopicState]:
    found = {}
    for topic_id in topic_ids:
        topic = context.topics.by_id(topic_id)
        if topic is not None:
            found[topic_id] = TopicState(topic.name, frozenset(range(len(topic.partitions))))
    return found


def initialized_partitions(shard: GroupShard, group_id: str) -> Mapping[Uuid, TopicState]:
    """The partitions of a group whose state is initialized; none if there is no such group."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return {}
    return (group.state_partitions or NO_STATE_PARTITIONS).initialized


def remove_deleted_topics(
    shard: GroupShard, group_id: str, deleted_topics: Iterable[tuple[str, Uuid]]
) -> Iterator[None]:
    """Forget the states of deleted topics (name and id); the share coordinator removes them itself.

    Raises KafkaError if the append fails.
    """
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup) or group.state_partitions is None:
        return
    left = group.state_partitions.without_topics({topic_id for _, topic_id in deleted_topics})
    if left != group.state_partitions:
        _commit(shard, group, left)
    yield


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty():
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def _commit(shard: GroupShard, group: ShareGroup, partitions: StatePartitions) -> None:
    shard.commit([records.state_partitions(group.group_id, partitions, shard.context.topics)])
