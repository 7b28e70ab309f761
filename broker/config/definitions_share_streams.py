"""The broker's keys for share groups and streams groups (Kafka: ``GroupCoordinatorConfig``, ``ShareGroupConfig``).

There are no streams groups yet, but clients can configure them: the limits are in effect then, and the other keys give
the defaults that DescribeConfigs shows."""

from __future__ import annotations

from typing import Any

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    SHORT,
    STRING,
    KeyCollector,
    key,
)
from oncelog.broker.config.definitions_coordinators import (
    ASSIGNOR_OFFLOAD,
    codec_of,
    partitions_of,
    replicas_of,
    segment_bytes_of,
)


def _default(
    default: int, documentation: str, least: int = 1, most: int | None = None, **options: Any
) -> Any:
    """Declare the default of a group's key."""
    return key(INT, default, documentation, at_least=least, at_most=most, in_effect=False, **options)


def _min_limit(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The smallest value that a group may set for the key without min{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


def _max_limit(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The largest value that a group may set for the key without max{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


class ShareGroupKeys(metaclass=KeyCollector):
    """Keys for share groups."""

    __slots__ = ()

    group_share_session_timeout_ms: int = key(
        INT, 45_000, "Milliseconds without a heartbeat after which a member is removed.", at_least=1
    )
    group_share_min_session_timeout_ms: int = _min_limit(45_000)
    group_share_max_session_timeout_ms: int = _max_limit(60_000)
    group_share_heartbeat_interval_ms: int = key(
        INT, 5_000, "Milliseconds between two heartbeats of a member.", at_least=1
    )
    group_share_min_heartbeat_interval_ms: int = _min_limit(5_000)
    group_share_max_heartbeat_interval_ms: int = _max_limit(15_000)
    group_share_assignment_interval_ms: int = key(
        INT, 1_000, "Milliseconds between two new assignments of a group.", at_least=0, update=CLUSTER_WIDE
    )
    group_share_min_assignment_interval_ms: int = _min_limit(0, 0)
    group_share_max_assignment_interval_ms: int = _max_limit(15_000, 0)
    group_share_record_lock_duration_ms: int = key(
        INT,
        30_000,
        "Milliseconds after which a record that no consumer has acknowledged is delivered again.",
        at_least=1_000,
        at_most=3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = _min_limit(15_000, 1_000, 30_000)
    group_share_max_record_lock_duration_ms: int = _max_limit(60_000, 30_000, 3_600_000)
    group_share_delivery_count_limit: int = key(
        INT, 5, "The most deliveries of a record.", at_least=2, at_most=10
    )
    group_share_min_delivery_count_limit: int = _min_limit(2, 2, 5, unit="")
    group_share_max_delivery_count_limit: int = _max_limit(10, 5, 25, unit="")
    group_share_partition_max_record_locks: int = key(
        INT,
        2_000,
        "The most records of a partition that consumers hold at the same time.",
        at_least=100,
        at_most=10_000,
    )
    group_share_min_partition_max_record_locks: int = _min_limit(100, 100, 2_000, unit="")
    group_share_max_partition_max_record_locks: int = _max_limit(4_000, 2_000, 10_000, unit="")
    group_share_max_size: int = key(INT, 200, "The most members of a share group.", at_least=1, at_most=1_000)
    group_share_initialize_retry_interval_ms: int = key(
        INT,
        30_000,
        "Milliseconds after which the initialization of a share partition's state is tried again.",
        importance=LOW,
        at_least=1,
        internal=True,
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = key(
        BOOLEAN,
        False,
        "Whether a share group's dead-letter queue is created when the first record goes there.",
        update=CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix: str = key(
        STRING,
        "dlq.",
        "How the name of a share group's dead-letter queue must begin.",
        update=CLUSTER_WIDE,
    )
    group_share_assignor_offload_enable: bool = key(
        BOOLEAN, True, ASSIGNOR_OFFLOAD, update=CLUSTER_WIDE, internal=True
    )
    group_share_dlq_manager_class_name: str = key(
        STRING,
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        "The class that writes dead-letter queues.",
        internal=True,
        in_effect=False,
    )
    group_share_max_share_sessions: int = key(INT, 2_000, "Share sessions that are kept at once.", at_least=1)


class ShareCoordinatorKeys(metaclass=KeyCollector):
    """Keys for the share coordinator."""

    __slots__ = ()

    share_coordinator_state_topic_num_partitions: int = partitions_of("__share_group_state")
    share_coordinator_state_topic_replication_factor: int = replicas_of("__share_group_state")
    share_coordinator_state_topic_min_isr: int = key(
        SHORT, 2, "In-sync replicas that a write to __share_group_state needs.", at_least=1, importance=HIGH
    )
    share_coordinator_state_topic_segment_bytes: int = segment_bytes_of("__share_group_state")
    share_coordinator_state_topic_compression_codec: int = codec_of("__share_group_state")
    share_coordinator_snapshot_update_records_per_snapshot: int = key(
        INT, 500, "Updates of a share partition between two of its snapshots.", at_least=0, at_most=500
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = key(
        INT,
        300_000,
        "Milliseconds after which an idle share partition gets a snapshot.",
        at_least=1,
        importance=LOW,
        internal=True,
    )
    share_coordinator_write_timeout_ms: int = key(
        INT,
        5_000,
        "Milliseconds that a state may take to be written to all replicas.",
        at_least=1,
        importance=HIGH,
        of_several_nodes=True,
    )
    share_coordinator_state_topic_prune_interval_ms: int = key(
        INT,
        300_000,
        "Milliseconds between two deletions of obsolete records of __share_group_state.",
        at_least=1,
        importance=LOW,
        internal=True,
    )


class StreamsGroupKeys(metaclass=KeyCollector):
    """Keys for streams groups."""

    __slots__ = ()

    group_streams_session_timeout_ms: int = _default(
        45_000, "Milliseconds without a heartbeat after which a member is removed."
    )
    group_streams_min_session_timeout_ms: int = _min_limit(45_000)
    group_streams_max_session_timeout_ms: int = _max_limit(60_000)
    group_streams_heartbeat_interval_ms: int = _default(
        5_000, "Milliseconds between two heartbeats of a member."
    )
    group_streams_min_heartbeat_interval_ms: int = _min_limit(5_000)
    group_streams_max_heartbeat_interval_ms: int = _max_limit(15_000)
    group_streams_assignment_interval_ms: int = _default(
        1_000, "Milliseconds between two new assignments of a group.", 0, update=CLUSTER_WIDE
    )
    group_streams_min_assignment_interval_ms: int = _min_limit(0, 0)
    group_streams_max_assignment_interval_ms: int = _max_limit(15_000, 0)
    group_streams_num_standby_replicas: int = _default(0, "Standby replicas of each task.", 0)
    group_streams_max_standby_replicas: int = _max_limit(2, 0, unit="")
    group_streams_initial_rebalance_delay_ms: int = _default(
        3_000, "Milliseconds that an empty group waits for more members after the first one.", 0
    )
    group_streams_assignors: tuple[str, ...] = key(
        LIST, ("sticky",), "The assignors that a streams group may choose.", in_effect=False
    )
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = key(
        LIST, (), "Tags of clients over which standby replicas are spread.", importance=LOW, in_effect=False
    )
    group_streams_topology_description_plugin_class: str | None = key(
        CLASS, None, "The plug-in that keeps the descriptions of topologies.", in_effect=False
    )
    group_streams_assignor_offload_enable: bool = key(
        BOOLEAN,
        True,
        "For streams groups; without effect here.",
        update=CLUSTER_WIDE,
        internal=True,
        in_effect=False,
    )
    group_streams_task_offset_interval_ms: int = key(
        INT,
        60_000,
        "Milliseconds between two reports of a warm-up task's offsets.",
        at_least=1,
        internal=True,
        in_effect=False,
    )
    group_streams_min_task_offset_interval_ms: int = key(
        INT,
        15_000,
        "The least milliseconds of that interval that a group may set.",
        at_least=1,
        internal=True,
    )
    group_streams_num_warmup_replicas: int = key(
        INT, 2, "Warm-up tasks of a group.", at_least=0, internal=True, in_effect=False
    )
    group_streams_max_warmup_replicas: int = key(
        INT, 20, "The most warm-up tasks that a group may set.", at_least=0, internal=True
    )
    group_streams_acceptable_recovery_lag: int = key(
        LONG,
        10_000,
        "Offsets that a member may lack and still get an active task.",
        at_least=0,
        internal=True,
        in_effect=False,
    )
