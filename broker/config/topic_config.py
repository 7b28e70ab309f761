"""`TopicConfig`: the configuration of one topic, with one attribute per key: ``config.segment_bytes`` is
``segment.bytes``.

Keys, defaults and error messages are those of ``org.apache.kafka.storage.internals.log.LogConfig`` of Kafka 4.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from oncelog.broker.config.broker_config import MS_PER_HOUR, MS_PER_MINUTE, BrokerConfig
from oncelog.broker.config.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigError,
    ConfigType,
    KeyCollector,
    Value,
    between_or,
    key,
)
from oncelog.broker.config.definitions_log import CLEANUP_POLICIES, COMPRESSION_TYPES, TIMESTAMP_TYPES
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping


def _key(type: ConfigType, synonym: str, documentation: str, *more: tuple[str, int], **options: Any) -> Any:
    """Declare a key whose default is the value of the broker's key ``synonym``. If that is not set, the keys in
    ``more`` give it, each with a factor."""
    return key(type, None, documentation, synonyms=((synonym, 1), *more), **options)


def _check_throttled(name: str, value: tuple[str, ...]) -> None:
    """Check that a list is ``*`` or pairs of numbers (``ThrottledReplicaListValidator``). Raises ConfigError."""
    if value == ("*",) or all(_is_throttled_replica(pair) for pair in value):
        return
    raise ConfigError(
        f"Invalid value [{', '.join(value)}] for configuration {name}: {name} must be the literal '*' "
        "or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _is_throttled_replica(pair: str) -> bool:
    partition, _, broker = pair.partition(":")
    return not pair or (partition.isdecimal() and broker.isdecimal())


class TopicKeys(metaclass=KeyCollector):
    """The keys in Kafka's order. If several values are invalid, the first in this order is reported."""

    __slots__ = ()

    segment_bytes: int = _key(
        INT, "log.segment.bytes", "Size in bytes at which a new segment starts.", at_least=1 << 20
    )
    segment_ms: int = _key(
        LONG,
        "log.roll.ms",
        "Age in milliseconds at which a new segment starts.",
        ("log.roll.hours", MS_PER_HOUR),
        at_least=1,
    )
    segment_jitter_ms: int = _key(
        LONG,
        "log.roll.jitter.ms",
        "A random time up to this many milliseconds is subtracted from segment.ms.",
        ("log.roll.jitter.hours", MS_PER_HOUR),
        at_least=0,
    )
    segment_index_bytes: int = _key(
        INT, "log.index.size.max.bytes", "Bytes of an offset index at which its segment is full.", at_least=4
    )
    flush_messages: int = _key(
        LONG,
        "log.flush.interval.messages",
        "Records after which the log is flushed; 1 flushes before every response.",
        at_least=1,
    )
    flush_ms: int = _key(
        LONG,
        "log.flush.interval.ms",
        "Milliseconds that a record may stay unflushed.",
        ("log.flush.scheduler.interval.ms", 1),
        at_least=0,
    )
    retention_bytes: int = _key(
        LONG, "log.retention.bytes", "Bytes of a partition that are kept; -1 is without limit."
    )
    retention_ms: int = _key(
        LONG,
        "log.retention.ms",
        "Milliseconds that records are kept; -1 is for ever.",
        ("log.retention.minutes", MS_PER_MINUTE),
        ("log.retention.hours", MS_PER_HOUR),
        at_least=-1,
    )
    max_message_bytes: int = _key(
        INT, "message.max.bytes", "Bytes of the largest batch, its header included.", at_least=0
    )
    max_decompressed_message_bytes: int = _key(
        INT,
        "max.decompressed.message.bytes",
        "Bytes of the largest record in a compressed batch.",
        at_least=1,
        at_most=2_147_483_639,
    )
    index_interval_bytes: int = _key(
        INT, "log.index.interval.bytes", "Bytes of log between two entries of an index.", at_least=0
    )
    delete_retention_ms: int = _key(
        LONG,
        "log.cleaner.delete.retention.ms",
        "Milliseconds that a compacted log keeps a tombstone.",
        at_least=0,
    )
    min_compaction_lag_ms: int = _key(
        LONG,
        "log.cleaner.min.compaction.lag.ms",
        "The least milliseconds that a record stays uncompacted.",
        at_least=0,
    )
    max_compaction_lag_ms: int = _key(
        LONG,
        "log.cleaner.max.compaction.lag.ms",
        "The most milliseconds that a record stays uncompacted.",
        at_least=1,
    )
    file_delete_delay_ms: int = _key(
        LONG,
        "log.segment.delete.delay.ms",
        "Milliseconds after which a file that was removed from the log is deleted from the disk.",
        at_least=0,
    )
    min_cleanable_dirty_ratio: float = _key(
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        "The cleaner cleans the log if at least this share of its bytes is dirty.",
        at_least=0,
        at_most=1,
    )
    cleanup_policy: tuple[str, ...] = _key(
        LIST,
        "log.cleanup.policy",
        "The cleanup of old segments: delete, compact, both or (empty) none.",
        choices=CLEANUP_POLICIES,
    )
    unclean_leader_election_enable: bool = _key(
        BOOLEAN,
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync may become leader if no other replica is left.",
        in_effect=False,
    )
    min_insync_replicas: int = _key(
        INT, "min.insync.replicas", "In-sync replicas that acks=all needs.", at_least=1
    )
    compression_type: str = _key(
        STRING,
        "compression.type",
        "The codec of stored batches; producer keeps the codec of the request.",
        choices=COMPRESSION_TYPES,
    )
    compression_gzip_level: int = _key(
        INT,
        "compression.gzip.level",
        "The level for compression.type gzip; -1 is the library's own.",
        check=between_or(1, 9, -1),
    )
    compression_lz4_level: int = _key(
        INT, "compression.lz4.level", "The level for compression.type lz4.", at_least=1, at_most=17
    )
    compression_zstd_level: int = _key(
        INT, "compression.zstd.level", "The level for compression.type zstd.", at_least=-131072, at_most=22
    )
    preallocate: bool = _key(
        BOOLEAN,
        "log.preallocate",
        "Whether the broker allocates a new segment's file in full size.",
        in_effect=False,
    )
    message_timestamp_type: str = _key(
        STRING,
        "log.message.timestamp.type",
        "Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime).",
        choices=TIMESTAMP_TYPES,
    )
    message_timestamp_before_max_ms: int = _key(
        LONG,
        "log.message.timestamp.before.max.ms",
        "Milliseconds that a record's timestamp may lie in the past.",
        at_least=0,
    )
    message_timestamp_after_max_ms: int = _key(
        LONG,
        "log.message.timestamp.after.max.ms",
        "Milliseconds that a record's timestamp may lie in the future.",
        at_least=0,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        LIST,
        (),
        "Replicas whose replication the leader throttles; without effect on one node.",
        check=_check_throttled,
        in_effect=False,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        LIST,
        (),
        "Replicas whose replication the follower throttles; without effect on one node.",
        check=_check_throttled,
        in_effect=False,
    )
    remote_storage_enable: bool = key(
        BOOLEAN, False, "Whether the topic uses tiered storage; oncelog refuses it."
    )
    local_retention_ms: int = _key(
        LONG,
        "log.local.retention.ms",
        "With tiered storage, milliseconds that records are kept on this node; -2 is retention.ms.",
        at_least=-2,
        in_effect=False,
    )
    local_retention_bytes: int = _key(
        LONG,
        "log.local.retention.bytes",
        "With tiered storage, bytes of a partition that are kept on this node; -2 is retention.bytes.",
        at_least=-2,
        in_effect=False,
    )
    remote_log_copy_disable: bool = key(
        BOOLEAN,
        False,
        "Whether no more segments are copied to tiered storage; without effect here.",
        in_effect=False,
    )
    remote_copy_lag_ms: int = _key(
        LONG,
        "log.remote.copy.lag.ms",
        "With tiered storage, milliseconds before a segment is copied; -1 is the local retention.",
        at_least=-1,
        in_effect=False,
    )
    remote_copy_lag_bytes: int = _key(
        LONG,
        "log.remote.copy.lag.bytes",
        "With tiered storage, newer bytes before a segment is copied; -1 is the local retention.",
        at_least=-1,
        in_effect=False,
    )
    remote_log_delete_on_disable: bool = key(
        BOOLEAN,
        False,
        "Whether segments in tiered storage are deleted when it is disabled; without effect here.",
        in_effect=False,
    )
    errors_deadletterqueue_group_enable: bool = key(
        BOOLEAN, False, "Whether share groups may use the topic as their dead-letter queue."
    )
    internal_segment_bytes: int | None = key(
        INT, None, "As segment.bytes, without its lower bound; for tests.", internal=True
    )


class TopicConfig(TopicKeys, metaclass=KeyCollector, with_values=True):
    """The values of all keys of a topic; immutable.

    ``compact`` and ``delete``: whether ``cleanup.policy`` contains them. ``segment_size``: the size in bytes at which a
    segment is full (``internal.segment.bytes``, else ``segment.bytes``). ``max_segment_ms``: the age at which a segment
    is rolled; in a compacted log that is at most ``max.compaction.lag.ms``.
    """

    __slots__ = ("compact", "delete", "max_segment_ms", "segment_size")

    if TYPE_CHECKING:
        compact: bool
        delete: bool
        segment_size: int
        max_segment_ms: int

    def __init__(self, values: Mapping[str, Value]) -> None:
        """``values`` are parsed values, one for every key. `effective` makes a configuration from texts."""
        put = object.__setattr__
        for name, found in TopicConfig.KEYS.items():
            put(self, found.attribute, values[name])
        put(self, "compact", "compact" in self.cleanup_policy)
        put(self, "delete", "delete" in self.cleanup_policy)
        put(self, "segment_size", self.internal_segment_bytes or self.segment_bytes)
        rolled_for_lag = self.compact and self.max_compaction_lag_ms > 0
        put(
            self,
            "max_segment_ms",
            min(self.segment_ms, self.max_compaction_lag_ms) if rolled_for_lag else self.segment_ms,
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"TopicConfig is immutable ({name})")

    def value(self, name: str) -> Value:
        """Return the value of a key. Raises KeyError for an unknown key."""
        found: Value = getattr(self, TopicConfig.KEYS[name].attribute)
        return found

    def text(self, name: str) -> str | None:
        """Return the value of a key as Kafka writes it, None for a null. Raises KeyError for an unknown key."""
        return TopicConfig.KEYS[name].to_text(self.value(name))

    @classmethod
    def defaults_of(cls, broker: BrokerConfig) -> TopicConfig:
        """Return the configuration of a topic without overrides (``KafkaConfig.extractLogConfigMap``)."""
        values = {
            name: broker.first_set(found.synonyms) if found.synonyms else found.default
            for name, found in cls.KEYS.items()
        }
        values["retention.ms"] = max(-1, values["retention.ms"])  # type: ignore[type-var]
        return cls(values)

    @classmethod
    def effective(
        cls,
        overrides: Mapping[str, str],
        broker: BrokerConfig,
        broker_dynamic: Mapping[str, str] | None = None,
    ) -> TopicConfig:
        """Return the configuration of a topic with these overrides, on a broker with the configuration ``broker`` and
        the dynamic changes ``broker_dynamic``.

        Raises KafkaError (INVALID_CONFIG) as `parse_topic_overrides`.
        """
        defaults = (broker.with_changes(broker_dynamic) if broker_dynamic else broker).topic_defaults()
        if not overrides:
            return defaults
        values = {name: getattr(defaults, found.attribute) for name, found in cls.KEYS.items()}
        values.update(parse_topic_overrides(overrides, defaults))
        return cls(values)


def parse_topic_overrides(
    overrides: Mapping[str, str | None], defaults: TopicConfig | None = None
) -> dict[str, Value]:
    """Return the values of a topic's overrides, by key. ``defaults`` has the values of all other keys.

    Raises KafkaError (INVALID_CONFIG) with Kafka's message for an unknown key, a null, an invalid value, tiered
    storage, or settings that contradict each other (``LogConfig.validate``)."""
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    for name in overrides:
        if name not in TopicConfig.KEYS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    defaults = defaults or BrokerConfig().topic_defaults()
    try:
        values = {
            name: found.parse(overrides[name] or "")
            for name, found in TopicConfig.KEYS.items()
            if name in overrides
        }
        _check_combination(values, defaults)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return values


def _check_combination(values: Mapping[str, Value], defaults: TopicConfig) -> None:
    least: Any = values.get("min.compaction.lag.ms", defaults.min_compaction_lag_ms)
    most: Any = values.get("max.compaction.lag.ms", defaults.max_compaction_lag_ms)
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if values.get("remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
