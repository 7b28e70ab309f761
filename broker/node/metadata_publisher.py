"""`MetadataPublisher`: applies what changes in the metadata to the parts of a node.

Source: Kafka's ``BrokerMetadataPublisher``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.metadata.configs import dynamic_broker_texts
from oncelog.broker.metadata.image import BROKER, CLIENT_METRICS, TOPIC
from oncelog.wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)

if TYPE_CHECKING:
    from oncelog.broker.metadata.image import Topic
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
        elif isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
            self._on_acl(record)
        elif isinstance(record, ClientQuotaRecord):
            self._on_client_quota()

    def _on_client_quota(self) -> None:
        """The change holds for the next request. While nobody has a quota, none are installed: they cost time."""
        node = self._node
        node.connection_rates.on_change()
        node.quotas.on_change()
        is_needed = node.metadata.image.client_quotas.clients > 0
        if is_needed or node.dispatcher.has_quotas:
            node.dispatcher.throttle_with(node.quotas if is_needed else None)

    def _on_acl(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        """The change holds for the next request, whatever the fast paths remember."""
        node = self._node
        if node.authorizer is None:
            return
        if isinstance(record, AccessControlEntryRecord):
            node.authorizer.add(record.id, AclBinding.of(record))
        else:
            node.authorizer.remove(record.id)
        node.dispatcher.forget()

    def _on_config(self, record: ConfigRecord) -> None:
        node = self._node
        name = record.resource_name
        if record.resource_type == TOPIC:
            if name in node.metadata.image.topics:
                node.logs.update_config(name, node.topic_config(name))
        elif record.resource_type == CLIENT_METRICS:
            node.client_metrics.on_change()
        elif record.resource_type == BROKER:
            self.apply_broker_configs()
            node.server.reconsider_limits()
            for topic in node.metadata.image.topics:
                node.logs.update_config(topic, node.topic_config(topic))

    def apply_broker_configs(self) -> None:
        """Apply the dynamic configuration in the metadata to the node."""
        node = self._node
        node.config.change(dynamic_broker_texts(node.metadata.image, node.config.static.node_id))
        node.logs.update_broker_config(node.config.current)
