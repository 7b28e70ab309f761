"""The broker's keys for its logs: defaults of topics, retention, cleaning, flushing (Kafka: ``ServerLogConfigs``,
``CleanerConfig``, ``ServerConfigs``)."""

from __future__ import annotations

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    PER_BROKER,
    STRING,
    KeyCollector,
    between_or,
    key,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class LogKeys(metaclass=KeyCollector):
    """Keys for the data directory and the logs in it, and the defaults of topics."""

    __slots__ = ()

    log_dir: tuple[str, ...] = key(
        LIST, ("/tmp/kafka-logs",), "The data directory if log.dirs is not set.", importance=HIGH
    )
    log_dirs: tuple[str, ...] | None = key(
        LIST, None, "The data directory; oncelog keeps exactly one.", importance=HIGH
    )

    log_segment_bytes: int = key(
        INT,
        1 << 30,
        "Size in bytes at which a log starts a new segment.",
        at_least=1 << 20,
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_roll_ms: int | None = key(
        LONG,
        None,
        "Age in milliseconds at which a log starts a new segment.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_roll_hours: int = key(
        INT, 168, "As log.roll.ms, in hours; used if log.roll.ms is not set.", at_least=1, importance=HIGH
    )
    log_roll_jitter_ms: int | None = key(
        LONG,
        None,
        "A random time up to this many milliseconds is subtracted from log.roll.ms.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_roll_jitter_hours: int = key(
        INT, 0, "As log.roll.jitter.ms, in hours; used if that is not set.", at_least=0, importance=HIGH
    )
    log_index_size_max_bytes: int = key(
        INT,
        10 << 20,
        "Size in bytes of an offset index at which its segment is full.",
        at_least=4,
        update=CLUSTER_WIDE,
    )
    log_index_interval_bytes: int = key(
        INT, 4096, "Bytes of log between two entries of an index.", at_least=0, update=CLUSTER_WIDE
    )
    log_preallocate: bool = key(
        BOOLEAN,
        False,
        "Whether the broker allocates a new segment's file in full size.",
        update=CLUSTER_WIDE,
        in_effect=False,
    )
    log_segment_delete_delay_ms: int = key(
        LONG,
        60_000,
        "Milliseconds after which a file that was removed from a log is deleted from the disk.",
        at_least=0,
        importance=HIGH,
        update=CLUSTER_WIDE,
    )

    log_retention_ms: int | None = key(
        LONG,
        None,
        "Milliseconds that records are kept; -1 is for ever.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_retention_minutes: int | None = key(
        INT, None, "As log.retention.ms, in minutes; used if that is not set.", importance=HIGH
    )
    log_retention_hours: int = key(
        INT,
        168,
        "As log.retention.ms, in hours; used if neither milliseconds nor minutes are set.",
        importance=HIGH,
    )
    log_retention_bytes: int = key(
        LONG,
        -1,
        "Bytes of a partition that are kept; -1 is without limit.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_retention_check_interval_ms: int = key(
        LONG, 300_000, "Milliseconds between two searches for segments to delete.", at_least=1
    )
    log_local_retention_ms: int = key(
        LONG,
        -2,
        "With tiered storage, milliseconds that records are kept on this node; -2 is log.retention.ms.",
        at_least=-2,
        update=CLUSTER_WIDE,
        in_effect=False,
    )
    log_local_retention_bytes: int = key(
        LONG,
        -2,
        "With tiered storage, bytes of a partition that are kept on this node; -2 is log.retention.bytes.",
        at_least=-2,
        update=CLUSTER_WIDE,
        in_effect=False,
    )

    log_remote_copy_lag_ms: int = key(
        LONG,
        0,
        "With tiered storage, milliseconds before a segment is copied; -1 is the local retention.",
        at_least=-1,
        update=CLUSTER_WIDE,
        in_effect=False,
    )
    log_remote_copy_lag_bytes: int = key(
        LONG,
        -1,
        "With tiered storage, newer bytes before a segment is copied; -1 is the local retention.",
        at_least=-1,
        update=CLUSTER_WIDE,
        in_effect=False,
    )

    cordoned_log_dirs: tuple[str, ...] = key(
        LIST, (), "Data directories that get no new partitions; * is all of them.", update=PER_BROKER
    )

    log_cleanup_policy: tuple[str, ...] = key(
        LIST,
        ("delete",),
        "The cleanup of old segments: delete, compact, both or (empty) none.",
        choices=CLEANUP_POLICIES,
        update=CLUSTER_WIDE,
    )
    log_cleaner_enable: bool = key(BOOLEAN, True, "Whether the log cleaner runs.")
    log_cleaner_backoff_ms: int = key(
        LONG,
        15_000,
        "Milliseconds that the cleaner sleeps when there is no log to clean.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        LONG, 128 << 20, "Bytes of memory for the offset map of one cleaning.", update=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = key(
        LONG,
        86_400_000,
        "Milliseconds that a compacted log keeps a tombstone.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        LONG, 0, "The least milliseconds that a record stays uncompacted.", at_least=0, update=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        LONG,
        LONG_MAX,
        "The most milliseconds that a record stays uncompacted.",
        at_least=1,
        update=CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio: float = key(
        DOUBLE,
        0.5,
        "The cleaner cleans a log if at least this share of its bytes is dirty.",
        at_least=0,
        at_most=1,
        update=CLUSTER_WIDE,
    )

    log_flush_interval_messages: int = key(
        LONG,
        LONG_MAX,
        "Records after which a partition is flushed to disk; 1 flushes before every response.",
        at_least=1,
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_flush_interval_ms: int | None = key(
        LONG, None, "Milliseconds that a record may stay unflushed.", importance=HIGH, update=CLUSTER_WIDE
    )
    log_flush_scheduler_interval_ms: int = key(
        LONG, LONG_MAX, "Milliseconds between two searches for logs to flush.", importance=HIGH
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        INT, 60_000, "Milliseconds between two writes of the recovery points.", at_least=0, importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        INT, 60_000, "Milliseconds between two writes of the log start offsets.", at_least=0, importance=HIGH
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        LONG, 5_000, "Milliseconds between two writes of the high watermarks.", importance=HIGH
    )
    log_initial_task_delay_ms: int = key(
        LONG,
        30_000,
        "Milliseconds from the start to the first background work on logs.",
        at_least=0,
        importance=LOW,
        internal=True,
    )

    message_max_bytes: int = key(
        INT,
        1_048_588,
        "Bytes of the largest batch that is accepted, its header included.",
        at_least=0,
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    max_decompressed_message_bytes: int = key(
        INT,
        2_147_483_639,
        "Bytes of the largest record that is accepted in a compressed batch.",
        at_least=1,
        at_most=2_147_483_639,
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_type: str = key(
        STRING,
        "CreateTime",
        "Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime).",
        choices=TIMESTAMP_TYPES,
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = key(
        LONG,
        LONG_MAX,
        "Milliseconds that a record's timestamp may lie in the past.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = key(
        LONG,
        3_600_000,
        "Milliseconds that a record's timestamp may lie in the future.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    compression_type: str = key(
        STRING,
        "producer",
        "The codec of stored batches; producer keeps the codec of the request.",
        choices=COMPRESSION_TYPES,
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    compression_gzip_level: int = key(
        INT,
        -1,
        "The level for compression.type gzip; -1 is the library's own.",
        check=between_or(1, 9, -1),
        update=CLUSTER_WIDE,
    )
    compression_lz4_level: int = key(
        INT, 9, "The level for compression.type lz4.", at_least=1, at_most=17, update=CLUSTER_WIDE
    )
    compression_zstd_level: int = key(
        INT, 3, "The level for compression.type zstd.", at_least=-131072, at_most=22, update=CLUSTER_WIDE
    )
    min_insync_replicas: int = key(
        INT, 1, "In-sync replicas that acks=all needs.", at_least=1, importance=HIGH, update=CLUSTER_WIDE
    )
    unclean_leader_election_enable: bool = key(
        BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader if no other replica is left.",
        importance=HIGH,
        update=CLUSTER_WIDE,
        of_several_nodes=True,
    )
    producer_id_expiration_ms: int = key(
        INT,
        86_400_000,
        "Milliseconds after its last batch at which an idempotent producer's state expires.",
        at_least=1,
        importance=LOW,
        update=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = key(
        INT,
        600_000,
        "Milliseconds between two searches for expired producers.",
        at_least=1,
        importance=LOW,
        internal=True,
    )

    metadata_log_max_record_bytes_between_snapshots: int = key(
        LONG,
        20 << 20,
        "Bytes of cluster metadata records after which the node writes a snapshot.",
        at_least=1,
        importance=HIGH,
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        LONG,
        3_600_000,
        "Milliseconds after which the node writes a snapshot of changed cluster metadata; 0 is never.",
        at_least=0,
        importance=HIGH,
    )
    metadata_log_segment_bytes: int = key(
        INT,
        1 << 30,
        "Size in bytes at which the cluster metadata log starts a new segment.",
        at_least=8 << 20,
        importance=HIGH,
        in_effect=False,
    )
    metadata_log_segment_ms: int = key(
        LONG,
        604_800_000,
        "Age in milliseconds at which the cluster metadata log starts a new segment.",
        importance=HIGH,
        in_effect=False,
    )
    metadata_max_retention_bytes: int = key(
        LONG,
        100 << 20,
        "Bytes of old cluster metadata snapshots and segments that are kept.",
        importance=HIGH,
        in_effect=False,
    )
    metadata_max_retention_ms: int = key(
        LONG,
        604_800_000,
        "Milliseconds that old cluster metadata snapshots and segments are kept.",
        importance=HIGH,
        in_effect=False,
    )
