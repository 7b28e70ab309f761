"""Topics that requests create on first use: those of clients, and the internal ones of the coordinators.

Source: ``AutoTopicCreationManager``, ``GroupCoordinatorService.groupMetadataTopicConfigs``,
``TransactionStateManager.transactionTopicConfigs``, ``ShareCoordinatorService.shareGroupStateTopicConfigs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    are changed; oncelog takes as many replicas as there are nodes (docs/differences.md).
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


def ensure(store: ClusterMetadata, config: DynamicBrokerConfig, name: str) -> Topic:
    """Return the internal topic, after creating it if need be. Raises KafkaError (COORDINATOR_NOT_AVAILABLE) if that
    fails.

    Partitions get their directories on first use, so that fifty of them cost nothing.
    """
    topics = store.image.topics
    if name in topics:
        return topics[name]
    wanted = topic_parameters(name, config.current, len(store.image.brokers))
    rows = [CreatableTopicConfig(key, value) for key, value in wanted.configs.items()]
    topic = CreatableTopic(name, wanted.partitions, wanted.replication_factor, [], rows)
    [row] = finish(create(store, config, [topic]))
    if name not in topics:
        store.lines.write(_log.error, "internal topic not created", {"topic": name}, error=row.error_message)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {row.error_message}"
        )
    _log.info("created an internal topic", topic=name, partitions=wanted.partitions)
    return topics[name]


def auto_create(
    store: ClusterMetadata, config: DynamicBrokerConfig, names: Sequence[str], charge: Charge | None = None
) -> Steps[dict[str, KafkaError | None]]:
    """Create topics with the broker's defaults, and internal ones as `topic_parameters`, in steps. Returns each topic's
    error, or None. ``charge``: as in `create`.
    """
    errors: dict[str, KafkaError | None] = {}
    for name in names:
        if name in INTERNAL_TOPICS:
            errors[name] = _create_internal(store, config, name)
    wanted = [CreatableTopic(name, UNSET, UNSET) for name in names if name not in INTERNAL_TOPICS]
    for row in (yield from create(store, config, wanted, charge=charge)):
        failed = row.error_code != ErrorCode.NONE
        errors[row.name] = KafkaError(ErrorCode(row.error_code), row.error_message) if failed else None
    return errors


def _create_internal(store: ClusterMetadata, config: DynamicBrokerConfig, name: str) -> KafkaError | None:
    try:
        ensure(store, config, name)
    except KafkaError as error:
        return error
    return None
