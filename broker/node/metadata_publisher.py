"""`MetadataPublisher`: applies what changes in the metadata to the parts of a node.

Source: Kafka's ``BrokerMetadataPublisher``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.configs import dynamic_broker_texts
from oncelog.broker.metadata.image import BROKER, CLIENT_METRICS, TOPIC
from oncelog.wire.stored.metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

if TYPE_CHECKING:
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.node.node import Node
    from oncelog.wire.schema import Message


class MetadataPublisher:
    """Applies the changes of the metadata to ``node``."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def on_record(self, record: Message, topic: Topic | None) -> None:
        """Apply a record of the metadata, which is about ``topic`` if that is given."""
        node = self._node
        # A new partition gets its directory on first use: ten thousand unused ones cost nothing.
        if isinstance(record, PartitionRecord | PartitionChangeRecord) and topic is not None:
            node.cluster.forget_partition(topic.name, record.partition_id)
        elif isinstance(record, RemoveTopicRecord) and topic is not None:
            node.cluster.forget(topic.name)
            for partition in range(len(topic.partitions)):
                node.logs.delete(topic.name, partition)
        elif isinstance(record, ConfigRecord):
            self._on_config(record)

    def _on_config(self, record: ConfigRecord) -> None:
        node = self._node
        name = record.resource_name
        if record.resource_type == TOPIC:
            if name in node.metadata.image.topics:
                node.logs.update_config(name, node.topic_config(name))
        elif record.resource_type == CLIENT_METRICS:
            node.client_metrics.on_change()
        elif record.resource_type == BROKER:
            apply_broker_configs(node.config, node.metadata, node.logs)
            node.server.reconsider_limits()
            for topic in node.metadata.image.topics:
                node.logs.update_config(topic, node.topic_config(topic))


def apply_broker_configs(config: DynamicBrokerConfig, metadata: MetadataStore, logs: LogManager) -> None:
    """Apply the dynamic configuration in the metadata."""
    config.change(dynamic_broker_texts(metadata.image, config.static.node_id))
    logs.update_broker_config(config.current)
