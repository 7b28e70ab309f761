"""`StatePartitions`: which partitions of a share group have a state in ``__share_group_state``.

A partition is initializing from the heartbeat that finds it subscribed until its state is initialized; only then a
member gets it. A topic is deleting while the states of its partitions are being deleted. Source: Kafka's
``ShareGroupStatePartitionMetadataInfo``, ``combineInitMaps``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from oncelog.coordinator.groups.context import Topics
    from oncelog.wire.schema import Uuid

UNKNOWN_TOPIC = "<UNKNOWN>"
"""The name of a topic that no longer exists."""


class TopicState(NamedTuple):
    """Partitions of a topic."""

    name: str
    partitions: frozenset[int]


ByTopic = Mapping["Uuid", TopicState]


class StatePartitions(NamedTuple):
    """Immutable; a method returns what a change comes to."""

    initializing: ByTopic
    initialized: ByTopic
    deleting: frozenset[Uuid]

    def with_initializing(self, topics: ByTopic) -> StatePartitions:
        """Begin to initialize ``topics``; what is being deleted is wanted again."""
        initializing = combined(self.initializing, topics)
        return StatePartitions(initializing, self.initialized, self.deleting.difference(initializing))

    def with_initialized(self, topics: ByTopic) -> StatePartitions:
        return StatePartitions(
            without(self.initializing, topics), combined(self.initialized, topics), self.deleting
        )

    def without_initializing(self, topics: ByTopic) -> StatePartitions:
        """Give up initializing ``topics``."""
        return self._replace(initializing=without(self.initializing, topics))

    def with_deleting(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """Begin to delete the initialized states of topics."""
        return StatePartitions(
            self.initializing, _except(self.initialized, topic_ids), self.deleting.union(topic_ids)
        )

    def without_deleting(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """The states of these topics are deleted."""
        return self._replace(deleting=self.deleting.difference(topic_ids))

    def without_topics(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """The topics are deleted, and with them their states."""
        return StatePartitions(
            _except(self.initializing, topic_ids),
            _except(self.initialized, topic_ids),
            self.deleting.difference(topic_ids),
        )


NO_STATE_PARTITIONS = StatePartitions({}, {}, frozenset())


def combined(first: ByTopic, second: ByTopic) -> dict[Uuid, TopicState]:
    """The partitions of both; a topic in both has its name in ``second``."""
    result = dict(first)
    for topic_id, topic in second.items():
        known = first.get(topic_id)
        result[topic_id] = (
            topic if known is None else TopicState(topic.name, known.partitions | topic.partitions)
        )
    return result


def without(first: ByTopic, second: ByTopic) -> dict[Uuid, TopicState]:
    """The partitions of ``first`` that are not in ``second``."""
    result = {}
    for topic_id, topic in first.items():
        gone = second.get(topic_id)
        left = topic if gone is None else TopicState(topic.name, topic.partitions - gone.partitions)
        if left.partitions:
            result[topic_id] = left
    return result


def _except(topics: ByTopic, topic_ids: Collection[Uuid]) -> dict[Uuid, TopicState]:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in topic_ids}


def name_of(topic_id: Uuid, topics: Topics) -> str:
    topic = topics.by_id(topic_id)
    return UNKNOWN_TOPIC if topic is None else topic.name
