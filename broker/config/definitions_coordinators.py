"""The broker's keys for groups, offsets and transactions (Kafka: ``GroupCoordinatorConfig``,
``TransactionLogConfig``, ``TransactionStateManagerConfig``).

What some of them rule is not built yet (`in_effect=False`): setting one gives a warning. Their values are known all
the same, for DescribeConfigs."""

from __future__ import annotations

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
    key,
    one_of_any_case,
)
from oncelog.broker.config.definitions_log import INT_MAX

MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


CODEC_NUMBERS = range(5)


def check_codec_number(name: str, value: int) -> None:
    if value not in CODEC_NUMBERS:
        raise ConfigError(f"Unknown compression type id: {value} for configuration {name}")


_ASSIGNORS = ("uniform", "range")
_ASSIGNOR_CLASSES = tuple(
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor" for name in _ASSIGNORS
)


def _check_assignors(name: str, value: tuple[str, ...]) -> None:
    """``GroupCoordinatorConfig.consumerGroupAssignors``: other people's classes there are none."""
    for word in value:
        if word not in (*_ASSIGNORS, *_ASSIGNOR_CLASSES):
            raise ConfigError(f"Class {word} cannot be found")
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"Configuration '{name}' must have values, and none of them twice.")


class GroupKeys(metaclass=KeyCollector):
    """Consumer groups, and the offsets that they commit."""

    __slots__ = ()

    group_min_session_timeout_ms: int = key(
        INT, 6_000, "Milliseconds of a classic member's session timeout at least."
    )
    group_max_session_timeout_ms: int = key(
        INT, 1_800_000, "Milliseconds of a classic member's session timeout at most."
    )
    group_initial_rebalance_delay_ms: int = key(
        INT, 3_000, "Milliseconds that an empty group waits for more members to join."
    )
    group_max_size: int = key(INT, INT_MAX, "Members of one classic group at most.", at_least=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        LIST,
        ("classic", "consumer", "streams"),
        "The group protocols that are served.",
        choices=("consumer", "classic", "share", "streams"),
    )

    group_consumer_session_timeout_ms: int = key(
        INT, 45_000, "Milliseconds of silence after which a member is dropped.", at_least=1
    )
    group_consumer_min_session_timeout_ms: int = key(
        INT, 45_000, "The least that a group may set for it, in milliseconds.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = key(
        INT, 60_000, "The most that a group may set for it, in milliseconds.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = key(
        INT, 5_000, "Milliseconds between two heartbeats of a member.", at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        INT, 5_000, "The least that a group may set for it, in milliseconds.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        INT, 15_000, "The most that a group may set for it, in milliseconds.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = key(
        INT,
        1_000,
        "Milliseconds between two new assignments of a group.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = key(
        INT, 0, "The least that a group may set for it, in milliseconds.", at_least=0
    )
    group_consumer_max_assignment_interval_ms: int = key(
        INT, 15_000, "The most that a group may set for it, in milliseconds.", at_least=0
    )
    group_consumer_max_size: int = key(INT, INT_MAX, "Members of one consumer group at most.", at_least=1)
    group_consumer_assignors: tuple[str, ...] = key(
        LIST,
        ("uniform", "range"),
        "The assignors to choose from; the first is the default.",
        check=_check_assignors,
    )
    group_consumer_migration_policy: str = key(
        STRING,
        "bidirectional",
        "Which way a group in use may change between the classic and the consumer protocol.",
        check=one_of_any_case(MIGRATION_POLICIES),
    )
    group_consumer_regex_refresh_interval_ms: int = key(
        INT,
        600_000,
        "Milliseconds between two looks for topics that match a subscribed pattern.",
        at_least=10_000,
        internal=True,
    )

    offset_metadata_max_bytes: int = key(
        INT, 4096, "Bytes of the text committed with an offset at most.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = key(
        INT,
        5_000,
        "Milliseconds that a commit may take to be written.",
        at_least=1,
        importance=HIGH,
        in_effect=False,
    )
    offsets_retention_minutes: int = key(
        INT,
        10_080,
        "Minutes that the offsets of a group without members are kept.",
        at_least=1,
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = key(
        LONG, 600_000, "Milliseconds between two looks for offsets to drop.", at_least=1, importance=HIGH
    )
    offsets_topic_num_partitions: int = key(
        INT, 50, "Partitions of __consumer_offsets.", at_least=1, importance=HIGH
    )
    offsets_topic_replication_factor: int = key(
        SHORT, 3, "Replicas of __consumer_offsets.", at_least=1, importance=HIGH
    )
    offsets_topic_segment_bytes: int = key(
        INT, 100 << 20, "Bytes of a segment of __consumer_offsets.", at_least=1, importance=HIGH
    )
    offsets_topic_compression_codec: int = key(
        INT,
        0,
        "The number of the codec of __consumer_offsets; 0 is none.",
        importance=HIGH,
        check=check_codec_number,
    )


class TransactionKeys(metaclass=KeyCollector):
    """Transactions, and the log of their states."""

    __slots__ = ()

    transaction_max_timeout_ms: int = key(
        INT,
        900_000,
        "Milliseconds that a producer may ask for as its transactions' timeout.",
        at_least=1,
        importance=HIGH,
    )
    transactional_id_expiration_ms: int = key(
        INT,
        604_800_000,
        "Milliseconds that an unused transactional id is remembered.",
        at_least=1,
        importance=HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        INT,
        10_000,
        "Milliseconds between two looks for transactions past their timeout.",
        at_least=1,
        importance=LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        INT,
        3_600_000,
        "Milliseconds between two looks for transactional ids to forget.",
        at_least=1,
        importance=LOW,
    )
    transaction_partition_verification_enable: bool = key(
        BOOLEAN,
        True,
        "Whether a partition must be part of the transaction that writes to it.",
        importance=LOW,
        update=CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = key(
        BOOLEAN,
        False,
        "Whether a producer may prepare a transaction and end it later.",
        importance=LOW,
        in_effect=False,
    )
    transaction_state_log_num_partitions: int = key(
        INT, 50, "Partitions of __transaction_state.", at_least=1, importance=HIGH
    )
    transaction_state_log_replication_factor: int = key(
        SHORT, 3, "Replicas of __transaction_state.", at_least=1, importance=HIGH
    )
    transaction_state_log_min_isr: int = key(
        INT, 2, "Replicas in sync that a write to __transaction_state needs.", at_least=1, importance=HIGH
    )
    transaction_state_log_segment_bytes: int = key(
        INT, 100 << 20, "Bytes of a segment of __transaction_state.", at_least=1, importance=HIGH
    )
