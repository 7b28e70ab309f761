"""The broker's keys for groups, offsets and transactions (Kafka: ``GroupCoordinatorConfig``,
``TransactionLogConfig``, ``TransactionStateManagerConfig``).

Keys with ``in_effect=False`` rule features that oncelog does not have yet: setting one gives a warning, and
DescribeConfigs shows its value."""

from __future__ import annotations

from typing import Any

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    SHORT,
    STRING,
    ConfigError,
    KeyCollector,
    case_insensitive_choice,
    key,
)
from oncelog.broker.config.definitions_log import INT_MAX

ASSIGNOR_OFFLOAD = (
    "Whether the rest of a large group's assignment is computed after the heartbeat; else within it."
)
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


CODEC_NUMBERS = range(5)


def _check_codec_number(name: str, value: int) -> None:
    if value not in CODEC_NUMBERS:
        raise ConfigError(f"Unknown compression type id: {value} for configuration {name}")


def partitions_of(topic: str) -> Any:
    """Declare the number of partitions of a coordinator's topic."""
    return key(INT, 50, f"Partitions of {topic}.", at_least=1, importance=HIGH)


def replicas_of(topic: str) -> Any:
    """Declare the replication factor of a coordinator's topic."""
    return key(SHORT, 3, f"Replicas of {topic}.", at_least=1, importance=HIGH)


def segment_bytes_of(topic: str) -> Any:
    """Declare the size of the segments of a coordinator's topic."""
    return key(INT, 100 << 20, f"Bytes of a segment of {topic}.", at_least=1, importance=HIGH)


def codec_of(topic: str) -> Any:
    """Declare the codec of a coordinator's topic."""
    text = f"The number of the codec of {topic}; 0 is none."
    return key(INT, 0, text, importance=HIGH, check=_check_codec_number)


_ASSIGNORS = ("uniform", "range")
_ASSIGNOR_CLASSES = tuple(
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor" for name in _ASSIGNORS
)


def _check_assignors(name: str, value: tuple[str, ...]) -> None:
    """Check the assignors (``GroupCoordinatorConfig.consumerGroupAssignors``). No other class can be loaded."""
    for word in value:
        if word not in (*_ASSIGNORS, *_ASSIGNOR_CLASSES):
            raise ConfigError(f"Class {word} cannot be found")
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"Configuration '{name}' must have values, and none of them twice.")


class GroupKeys(metaclass=KeyCollector):
    """Keys for groups and committed offsets."""

    __slots__ = ()

    group_min_session_timeout_ms: int = key(
        INT, 6_000, "The smallest session timeout of a classic member, in milliseconds."
    )
    group_max_session_timeout_ms: int = key(
        INT, 1_800_000, "The largest session timeout of a classic member, in milliseconds."
    )
    group_initial_rebalance_delay_ms: int = key(
        INT, 3_000, "Milliseconds that an empty group waits for more members after the first one."
    )
    group_max_size: int = key(INT, INT_MAX, "The most members of a classic group.", at_least=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        LIST,
        ("classic", "consumer", "streams"),
        "The group protocols that the broker serves.",
        choices=("consumer", "classic", "share", "streams"),
    )

    group_consumer_session_timeout_ms: int = key(
        INT, 45_000, "Milliseconds without a heartbeat after which a member is removed.", at_least=1
    )
    group_consumer_min_session_timeout_ms: int = key(
        INT, 45_000, "The smallest session timeout that a group may set, in milliseconds.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = key(
        INT, 60_000, "The largest session timeout that a group may set, in milliseconds.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = key(
        INT, 5_000, "Milliseconds between two heartbeats of a member.", at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        INT, 5_000, "The smallest heartbeat interval that a group may set, in milliseconds.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        INT, 15_000, "The largest heartbeat interval that a group may set, in milliseconds.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = key(
        INT,
        1_000,
        "Milliseconds between two new assignments of a group.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    group_consumer_assignor_offload_enable: bool = key(
        BOOLEAN, True, ASSIGNOR_OFFLOAD, update=CLUSTER_WIDE, internal=True
    )
    group_consumer_min_assignment_interval_ms: int = key(
        INT, 0, "The smallest assignment interval that a group may set, in milliseconds.", at_least=0
    )
    group_consumer_max_assignment_interval_ms: int = key(
        INT, 15_000, "The largest assignment interval that a group may set, in milliseconds.", at_least=0
    )
    group_consumer_max_size: int = key(INT, INT_MAX, "The most members of a consumer group.", at_least=1)
    group_consumer_assignors: tuple[str, ...] = key(
        LIST,
        ("uniform", "range"),
        "The assignors that members may choose; the first is the default.",
        check=_check_assignors,
    )
    group_consumer_migration_policy: str = key(
        STRING,
        "bidirectional",
        "In which directions a group with members may change between the classic and the consumer protocol.",
        check=case_insensitive_choice(MIGRATION_POLICIES),
    )
    group_consumer_regex_refresh_interval_ms: int = key(
        INT,
        600_000,
        "Milliseconds between two searches for topics that match a subscribed pattern.",
        at_least=10_000,
        internal=True,
    )

    offset_metadata_max_bytes: int = key(
        INT, 4096, "The most bytes of the metadata text of a committed offset.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = key(
        INT,
        5_000,
        "Milliseconds that a commit may take to be written to all replicas.",
        at_least=1,
        importance=HIGH,
        of_several_nodes=True,
    )
    offsets_retention_minutes: int = key(
        INT,
        10_080,
        "Minutes that the broker keeps the offsets of a group without members.",
        at_least=1,
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = key(
        LONG, 600_000, "Milliseconds between two searches for expired offsets.", at_least=1, importance=HIGH
    )
    offsets_topic_num_partitions: int = partitions_of("__consumer_offsets")
    offsets_topic_replication_factor: int = replicas_of("__consumer_offsets")
    offsets_topic_segment_bytes: int = segment_bytes_of("__consumer_offsets")
    offsets_topic_compression_codec: int = codec_of("__consumer_offsets")


class TransactionKeys(metaclass=KeyCollector):
    """Keys for transactions and ``__transaction_state``."""

    __slots__ = ()

    transaction_max_timeout_ms: int = key(
        INT,
        900_000,
        "The largest transaction timeout that a producer may set, in milliseconds.",
        at_least=1,
        importance=HIGH,
    )
    transactional_id_expiration_ms: int = key(
        INT,
        604_800_000,
        "Milliseconds after which an unused transactional id expires.",
        at_least=1,
        importance=HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        INT,
        10_000,
        "Milliseconds between two searches for transactions past their timeout.",
        at_least=1,
        importance=LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        INT,
        3_600_000,
        "Milliseconds between two searches for expired transactional ids.",
        at_least=1,
        importance=LOW,
    )
    transaction_partition_verification_enable: bool = key(
        BOOLEAN,
        True,
        "Whether a partition must be part of a transaction before the transaction writes to it.",
        importance=LOW,
        update=CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = key(
        BOOLEAN,
        False,
        "Whether a producer may have transactions that never time out (KIP-939).",
        importance=LOW,
    )
    transaction_state_log_num_partitions: int = partitions_of("__transaction_state")
    transaction_state_log_replication_factor: int = replicas_of("__transaction_state")
    transaction_state_log_min_isr: int = key(
        INT, 2, "In-sync replicas that a write to __transaction_state needs.", at_least=1, importance=HIGH
    )
    transaction_state_log_segment_bytes: int = segment_bytes_of("__transaction_state")
