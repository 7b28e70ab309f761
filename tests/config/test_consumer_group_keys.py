"""The broker's keys for groups must not contradict each other. Messages are those of ``GroupCoordinatorConfig``."""

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError

PREFIX = "group.consumer."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"session.timeout.ms": "44999"},
            "session.timeout.ms must be greater than or equal to X.min.session.timeout.ms",
        ),
        (
            {"session.timeout.ms": "60001"},
            "session.timeout.ms must be less than or equal to X.max.session.timeout.ms",
        ),
        (
            {"min.heartbeat.interval.ms": "16000"},
            "max.heartbeat.interval.ms must be greater than or equal to X.min.heartbeat.interval.ms",
        ),
        (
            {"assignment.interval.ms": "15001"},
            "assignment.interval.ms must be less than or equal to X.max.assignment.interval.ms",
        ),
        (
            {"heartbeat.interval.ms": "45000", "max.heartbeat.interval.ms": "45000"},
            "heartbeat.interval.ms must be less than X.session.timeout.ms",
        ),
        ({"assignors": "uniform,org.example.Mine"}, None),
        ({"assignors": ""}, None),
        ({"assignors": "range,range"}, None),
        ({"migration.policy": "sideways"}, None),
    ],
)
def test_refused(settings: dict[str, str], message: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({PREFIX + key: value for key, value in settings.items()})
    if message is not None:
        assert str(caught.value) == PREFIX + message.replace("X.", PREFIX)


def test_taken() -> None:
    config = BrokerConfig(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "200",
            "group.consumer.assignors": "range,org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "group.consumer.migration.policy": "UPGRADE",
        }
    )
    assert config.group_consumer_session_timeout_ms == 2000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"share.session.timeout.ms": "44999"},
            "share.session.timeout.ms must be greater than or equal to group.share.min.session.timeout.ms",
        ),
        (
            {"streams.heartbeat.interval.ms": "15001"},
            "streams.heartbeat.interval.ms must be less than or equal to group.streams.max.heartbeat.interval.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            {"share.max.delivery.count.limit": "5", "share.delivery.count.limit": "6"},
            "share.max.delivery.count.limit must be greater than or equal to group.share.delivery.count.limit",
        ),
        (
            {"share.record.lock.duration.ms": "14999"},
            "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            {"share.max.share.sessions": "199"},
            "share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
        ({"share.assignors": "a,b"}, "share.assignors must contain exactly one assignor, but found 2"),
        ({"share.assignors": ""}, "share.assignors must contain exactly one assignor, but found 0"),
    ],
)
def test_of_share_and_streams_groups(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({f"group.{key}": value for key, value in settings.items()})
    assert str(caught.value) == f"group.{message}"
