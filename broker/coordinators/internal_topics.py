"""The coordinators' topics: made when first needed, with the configuration that Kafka gives them.

Source: ``AutoTopicCreationManager``, ``GroupCoordinatorService.groupMetadataTopicConfigs``,
``TransactionStateManager.transactionTopicConfigs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.logs import get_logger
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.services import Services

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SERVED = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
"""The internal topics that have a coordinator here."""

_log = get_logger(__name__)


class InternalTopic(NamedTuple):
    """What an internal topic is made with."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def described(name: str, config: BrokerConfig, nodes: int) -> InternalTopic:
    """The topic as the broker's keys have it, on a cluster of ``nodes`` nodes.

    Kafka's defaults ask for three replicas and two in sync, which a single node cannot have; Kafka makes no topic then,
    and no group works until somebody changes the keys. Here it is as many as there are nodes (docs/differences.md).
    """
    if name == OFFSETS_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        factor = config.offsets_topic_replication_factor
        return InternalTopic(config.offsets_topic_num_partitions, min(factor, nodes), configs)
    assert name == TRANSACTIONS_TOPIC, name
    configs = {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": str(min(config.transaction_state_log_min_isr, nodes)),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    factor = config.transaction_state_log_replication_factor
    return InternalTopic(config.transaction_state_log_num_partitions, min(factor, nodes), configs)


def ensure(services: Services, name: str) -> Topic:
    """The topic, made if it is not there. Raises KafkaError (COORDINATOR_NOT_AVAILABLE) where it cannot be made.

    Partitions get their directories with their first use, so that fifty of them cost nothing.
    """
    topics = services.metadata.image.topics
    if name in topics:
        return topics[name]
    from oncelog.broker.metadata.topics import create
    from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

    wanted = described(name, services.config.current, len(services.metadata.image.brokers))
    rows = [CreatableTopicConfig(key, value) for key, value in wanted.configs.items()]
    [row] = create(services, [CreatableTopic(name, wanted.partitions, wanted.replication_factor, [], rows)])
    if name not in topics:
        _log.error("internal topic not made", topic=name, error=row.error_message)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be made: {row.error_message}"
        )
    _log.info("made an internal topic", topic=name, partitions=wanted.partitions)
    return topics[name]


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``, over UTF-16 code units."""
    value = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of(key: str, partitions: int) -> int:
    """Which of so many partitions stores a group or transactional id (``Utils.abs(hash) % partitions``)."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
