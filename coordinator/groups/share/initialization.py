"""When the state of a group's share partitions is initialized, and what becomes of it.

A heartbeat finds subscribed partitions without state and notes them as initializing. The broker then asks the share
coordinator, and a step of its own notes the result. What stays without one is tried again by a later heartbeat.
Source: Kafka's ``GroupMetadataManager``, ``maybeCreateInitializeShareGroupStateRequest``,
``initializeShareGroupState``, ``uninitializeShareGroupState``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.share import records
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.state_partitions import NO_STATE_PARTITIONS, TopicState, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.state_partitions import ByTopic
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

UNKNOWN_OFFSET = -1
"""The start offset that the first reader of a share partition finds by the group's reset strategy."""


FIRST_OFFSET = 0
"""The start offset of partitions that a topic got while the group read it: no record of theirs is left out."""


class Initialization(NamedTuple):
    """States to initialize, with the record that notes them as initializing.

    ``start_offsets``: topic id -> partition -> start offset, `UNKNOWN_OFFSET` if the first reader is to find it.
    """

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]
    record: CoordinatorRecord


def initialization(
    context: GroupContext, group: ShareGroup, epoch: int, subscriptions: Subscriptions
) -> Initialization | None:
    """Return the partitions to initialize for a group at ``epoch``: those of subscribed topics that are neither
    initialized nor, within the retry interval, initializing.
    """
    missing = _missing(context, group, subscriptions)
    if not missing:
        return None
    present = group.state_partitions or NO_STATE_PARTITIONS
    offsets = {
        topic_id: dict.fromkeys(
            sorted(topic.partitions),
            FIRST_OFFSET
            if topic_id in present.initialized or topic_id in present.initializing
            else UNKNOWN_OFFSET,
        )
        for topic_id, topic in missing.items()
    }
    return beginning(context, group, epoch, missing, offsets)


def beginning(
    context: GroupContext,
    group: ShareGroup,
    epoch: int,
    topics: ByTopic,
    start_offsets: Mapping[Uuid, Mapping[int, int]],
) -> Initialization:
    """The initialization of ``topics`` for a group at ``epoch``."""
    partitions = (group.state_partitions or NO_STATE_PARTITIONS).with_initializing(topics)
    record = records.state_partitions(group.group_id, partitions, context.topics)
    return Initialization(group.group_id, epoch, start_offsets, record)


def _missing(
    context: GroupContext, group: ShareGroup, subscriptions: Subscriptions
) -> dict[Uuid, TopicState]:
    present = group.state_partitions or NO_STATE_PARTITIONS
    retry_ms = context.settings().group_share_initialize_retry_interval_ms
    waits = context.now_ms() - group.volatile.initializing_since_ms < retry_ms
    missing = {}
    for name in sorted(subscriptions.existing(context.topics)):
        topic = context.topics.by_name(name)
        assert topic is not None
        count = len(topic.partitions)
        initialized = present.initialized.get(topic.topic_id)
        if initialized is not None and len(initialized.partitions) >= count:
            continue
        known = frozenset[int]() if initialized is None else initialized.partitions
        initializing = present.initializing.get(topic.topic_id)
        if waits and initializing is not None:
            known = known | initializing.partitions
        if len(known) < count:
            missing[topic.topic_id] = TopicState(name, frozenset(range(count)) - known)
    return missing


def initialized(shard: GroupShard, group_id: str, done: Mapping[Uuid, Iterable[int]]) -> None:
    """The states of these partitions are initialized. Raises KafkaError if the append fails."""
    group = shard.groups.get(group_id)
    if not done or not isinstance(group, ShareGroup):
        return
    topics = _with_names(shard.context, done)
    partitions = (group.state_partitions or NO_STATE_PARTITIONS).with_initialized(topics)
    shard.commit([records.state_partitions(group_id, partitions, shard.context.topics)])


def not_initialized(shard: GroupShard, group_id: str, failed: Mapping[Uuid, Iterable[int]]) -> None:
    """The states of these partitions could not be initialized. Raises KafkaError if the append fails."""
    group = shard.groups.get(group_id)
    if not failed or not isinstance(group, ShareGroup) or group.state_partitions is None:
        return
    if not group.state_partitions.initializing:
        return
    partitions = group.state_partitions.without_initializing(_with_names(shard.context, failed))
    shard.commit([records.state_partitions(group_id, partitions, shard.context.topics)])


def _with_names(context: GroupContext, topics: Mapping[Uuid, Iterable[int]]) -> dict[Uuid, TopicState]:
    return {
        topic_id: TopicState(name_of(topic_id, context.topics), frozenset(partitions))
        for topic_id, partitions in topics.items()
    }
