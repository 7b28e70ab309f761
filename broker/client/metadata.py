"""`ClusterMetadata`: a client's cache of a cluster's brokers, topics and partition leaders."""

from __future__ import annotations

from typing import TypeAlias

from oncelog.broker.client.errors import to_error_code
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

Address: TypeAlias = tuple[str, int]
"""A host and a port."""

METADATA_MAX_AGE_S = 300.0
"""Kafka's ``metadata.max.age.ms``."""


class ClusterMetadata:
    """A cache of Metadata responses. Times are in seconds of `real_time`."""

    def __init__(self, max_age_s: float = METADATA_MAX_AGE_S) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Address] = {}
        self._max_age_s = max_age_s
        self._topics: dict[str, tuple[MetadataResponseTopic, float]] = {}

    def update(self, response: MetadataResponse, now: float) -> None:
        """Replace the brokers, and the topics that are in the response."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {row.node_id: (row.host, row.port) for row in response.brokers}
        for topic in response.topics:
            if topic.name is not None:
                self._topics[topic.name] = topic, now + self._max_age_s

    def topic(self, name: str, now: float) -> MetadataResponseTopic | None:
        """Return the last row of a topic, perhaps with an error, or None if there is none or it is too old."""
        found = self._topics.get(name)
        return None if found is None or now >= found[1] else found[0]

    def forget(self, topic: str) -> None:
        """Remove a topic whose metadata turned out to be wrong."""
        self._topics.pop(topic, None)


def leader_of(topic: MetadataResponseTopic, partition: int) -> int:
    """Return the node id of a partition's leader.

    Raises KafkaError with Metadata's error, UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE."""
    shown = f"{topic.name}-{partition}"
    if topic.error_code:
        raise KafkaError(to_error_code(topic.error_code), shown)
    for row in topic.partitions:
        if row.partition_index == partition:
            if row.leader_id < 0:
                raise KafkaError(to_error_code(row.error_code or ErrorCode.LEADER_NOT_AVAILABLE), shown)
            return row.leader_id
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shown)
