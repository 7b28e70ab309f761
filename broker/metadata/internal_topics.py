"""Topics that requests create on first use: those of clients, and the internal ones of the coordinators.

Source: ``AutoTopicCreationManager``, ``GroupCoordinatorService.groupMetadataTopicConfigs``,
``TransactionStateManager.transactionTopicConfigs``, ``ShareCoordinatorService.shareGroupStateTopicConfigs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.topics import UNSET, create
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from oncelog.wire.steps import finish
from oncelog.wire.topic_names import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.metadata.topics import Charge
    from oncelog.wire.messages.create_topics import CreatableTopicResult
    from oncelog.wire.steps import Steps

_log = get_logger(__name__)


class InternalTopic(NamedTuple):
    """The parameters with which an internal topic is created."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def topic_parameters(name: str, config: BrokerConfig, nodes: int) -> InternalTopic:
    """Return the parameters of an internal topic, as the broker's keys set them for a cluster of ``nodes`` nodes.

    Kafka's defaults demand three replicas. With fewer nodes Kafka creates no topic, and no group works until the keys
    are changed; oncelog takes as many replicas as there are nodes (docs/reference/differences.md).
    """
    if name == OFFSETS_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        factor = config.offsets_topic_replication_factor
        return InternalTopic(config.offsets_topic_num_partitions, min(factor, nodes), configs)
    if name == SHARE_GROUP_STATE_TOPIC:
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "retention.ms": "-1",
        }
        factor = config.share_coordinator_state_topic_replication_factor
        return InternalTopic(config.share_coordinator_state_topic_num_partitions, min(factor, nodes), configs)
    assert name == TRANSACTIONS_TOPIC, name
    configs = {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    factor = config.transaction_state_log_replication_factor
    return InternalTopic(config.transaction_state_log_num_partitions, min(factor, nodes), configs)


class TopicCreator(Protocol):
    """Creates topics for requests that use them first (Kafka: ``TopicCreator``)."""

    def create(
        self, wanted: list[CreatableTopic], charge: Charge | None = None
    ) -> Steps[list[CreatableTopicResult]]:
        """Create topics, in steps, and return a result for each; or ask the controller for them, and return the results
        that are known at once: a topic without one exists as soon as the metadata say so. ``charge``: as in
        `oncelog.broker.metadata.topics.create`.
        """
        ...


class CreatesAtOnce:
    """The `TopicCreator` of a node that is its own controller."""

    def __init__(self, store: ClusterMetadata, config: DynamicBrokerConfig) -> None:
        self._store = store
        self._config = config

    def create(
        self, wanted: list[CreatableTopic], charge: Charge | None = None
    ) -> Steps[list[CreatableTopicResult]]:
        """See `TopicCreator`."""
        return create(self._store, self._config, wanted, charge=charge)


class AutoTopicCreationManager:
    """Creates topics on their first use, by ``creator`` (Kafka's class has this name)."""

    def __init__(self, metadata: ClusterMetadata, config: DynamicBrokerConfig, creator: TopicCreator) -> None:
        self._metadata = metadata
        self._config = config
        self.creator = creator

    def ensure(self, name: str) -> Topic:
        """Return the internal topic, after creating it if need be. Raises KafkaError (COORDINATOR_NOT_AVAILABLE) if
        there is none yet.

        Partitions get their directories on first use, so that fifty of them cost nothing.
        """
        topics = self._metadata.image.topics
        if name in topics:
            return topics[name]
        wanted = self._internal(name)
        rows = finish(self.creator.create([wanted]))
        if name in topics:
            _log.info("created an internal topic", topic=name, partitions=wanted.num_partitions)
            return topics[name]
        reason = "it was asked for"
        for row in rows:
            reason = row.error_message or ""
            self._metadata.lines.write(
                _log.error, "internal topic not created", {"topic": name}, error=reason
            )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {reason}")

    def create(
        self, names: Sequence[str], charge: Charge | None = None
    ) -> Steps[dict[str, KafkaError | None]]:
        """Create topics with the broker's defaults, and internal ones as `topic_parameters`, in steps. Returns each
        topic's error, or None. ``charge``: as in `create`.
        """
        errors: dict[str, KafkaError | None] = dict.fromkeys(names)
        for name in names:
            if name in INTERNAL_TOPICS:
                try:
                    self.ensure(name)
                except KafkaError as error:
                    errors[name] = error
        wanted = [CreatableTopic(name, UNSET, UNSET) for name in names if name not in INTERNAL_TOPICS]
        for row in (yield from self.creator.create(wanted, charge)):
            if row.error_code != ErrorCode.NONE:
                errors[row.name] = KafkaError(ErrorCode(row.error_code), row.error_message)
        return errors

    def _internal(self, name: str) -> CreatableTopic:
        wanted = topic_parameters(name, self._config.current, len(self._metadata.image.brokers))
        rows = [CreatableTopicConfig(key, value) for key, value in wanted.configs.items()]
        return CreatableTopic(name, wanted.partitions, wanted.replication_factor, [], rows)
