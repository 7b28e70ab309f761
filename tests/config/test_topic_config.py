"""`TopicConfig`. The expected errors are those of ``LogConfig.validate`` of Kafka 4.3.1."""

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.topic_config import TopicConfig, parse_topic_overrides
from oncelog.wire.errors import ErrorCode, KafkaError

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("segment.bytes", "10", "Value must be at least 1048576"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
        ("cleanup.policy", "Compact", "String must be one of: compact, delete"),
        ("compression.type", "lzo", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "0", "Value must be at least 1"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("local.retention.ms", "-3", "Value must be at least -2"),
        ("max.message.bytes", "-1", "Value must be at least 0"),
        ("flush.ms", "9223372036854775808", "Not a number of type LONG"),
    ],
)
def test_an_invalid_value(name: str, text: str, why: str) -> None:
    with pytest.raises(KafkaError) as caught:
        parse_topic_overrides({name: text})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == f"Invalid value {text} for configuration {name}: {why}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo.bar": "1"}, "Unknown topic config name: foo.bar"),
        ({"segment.bytes": "x", "foo.bar": "1"}, "Unknown topic config name: foo.bar"),
        ({"log.segment.bytes": "2000000"}, "Unknown topic config name: log.segment.bytes"),
        (
            {"foo.bar": None, "segment.ms": None},
            "Null value not supported for topic configs: foo.bar,segment.ms",
        ),
        ({"cleanup.policy": "compact,,delete"}, "Configuration 'cleanup.policy' values must not be empty."),
        (
            {"cleanup.policy": "foo", "flush.ms": "zz", "segment.bytes": "abc"},
            "Invalid value abc for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            {"leader.replication.throttled.replicas": "1:x"},
            "Invalid value [1:x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_invalid_overrides(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        parse_topic_overrides(overrides)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_CONFIG, message)


def test_overrides_may_contradict_the_brokers_defaults() -> None:
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "1000"})
    with pytest.raises(KafkaError, match=r"min.compaction.lag.ms \(1001\) > max.compaction.lag.ms \(1000\)"):
        TopicConfig.effective({"min.compaction.lag.ms": "1001"}, broker)
    assert TopicConfig.effective({"min.compaction.lag.ms": "1000"}, broker).min_compaction_lag_ms == 1000


def test_a_topic_without_overrides_has_the_brokers_defaults() -> None:
    broker = BrokerConfig({"message.max.bytes": "5000", "log.cleanup.policy": "compact,delete"})
    config = TopicConfig.effective({}, broker)
    assert config is TopicConfig.effective({}, broker)
    assert config.max_message_bytes == 5000
    assert (config.compact, config.delete) == (True, True)
    assert (config.flush_ms, config.retention_bytes) == (2**63 - 1, -1)


def test_an_override_wins_over_the_broker() -> None:
    broker = BrokerConfig({"message.max.bytes": "5000", "compression.type": "lz4"})
    config = TopicConfig.effective({"max.message.bytes": "7", "cleanup.policy": ""}, broker)
    assert (config.max_message_bytes, config.compression_type) == (7, "lz4")
    assert (config.compact, config.delete) == (False, False)
    assert config.text("cleanup.policy") == ""


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * MINUTE_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-5"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_wins(broker: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig.effective({}, BrokerConfig(broker)).retention_ms == retention_ms


def test_units_of_rolling_and_flushing() -> None:
    broker = BrokerConfig(
        {"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "3"}
    )
    config = TopicConfig.effective({}, broker)
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (HOUR_MS, 2 * HOUR_MS, 3)
    finer = broker.with_changes({"log.roll.ms": "4", "log.roll.jitter.ms": "5", "log.flush.interval.ms": "6"})
    config = TopicConfig.effective({}, finer)
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (4, 5, 6)


def test_dynamic_broker_configs_come_between() -> None:
    broker = BrokerConfig({"log.retention.ms": "1000", "message.max.bytes": "5000"})
    dynamic = {"log.retention.ms": "2000", "message.max.bytes": "6000"}
    config = TopicConfig.effective({"max.message.bytes": "7000"}, broker, dynamic)
    assert (config.retention_ms, config.max_message_bytes) == (2000, 7000)
    assert TopicConfig.effective({}, broker).retention_ms == 1000


def test_a_compacted_log_rolls_before_its_records_get_too_old() -> None:
    overrides = {"segment.ms": "5000", "max.compaction.lag.ms": "300"}
    assert TopicConfig.effective(overrides, BrokerConfig()).max_segment_ms == 5000
    compacted = TopicConfig.effective({**overrides, "cleanup.policy": "compact"}, BrokerConfig())
    assert compacted.max_segment_ms == 300


def test_segments_of_tests_may_be_tiny() -> None:
    config = TopicConfig.effective({"internal.segment.bytes": "100"}, BrokerConfig())
    assert (config.segment_size, config.segment_bytes) == (100, 1 << 30)


def test_it_is_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        TopicConfig.effective({}, BrokerConfig()).segment_bytes = 1
