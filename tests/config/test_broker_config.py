"""`BrokerConfig`: errors, keys without effect, contradictions."""

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.config.definitions import OUR_DEFAULTS, ConfigError


def test_defaults() -> None:
    config = BrokerConfig()
    assert (config.node_id, config.broker_id) == (1, 1)
    assert config.log_segment_bytes == 1 << 30
    assert config.listeners == ("PLAINTEXT://127.0.0.1:9092",)
    assert config.without_effect == ()
    assert config.text("log.flush.interval.ms") is None


def test_our_defaults_and_only_those_differ_from_kafkas() -> None:
    differing = {name for name, key in BrokerConfig.KEYS.items() if key.default != key.kafka_default}
    assert differing <= set(OUR_DEFAULTS)
    # Kafka requires these keys; their declared defaults are invalid values, and may equal ours.
    assert set(OUR_DEFAULTS) - differing <= {"node.id"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"foo": "1"}, "Unknown configuration foo (value 1) [from here:7]"),
        ({"foo.password": "hunter2"}, "Unknown configuration foo.password (value [hidden]) [from here:7]"),
        (
            {"num.partitions": "0"},
            "Invalid value 0 for configuration num.partitions: Value must be at least 1 [from here:7]",
        ),
        (
            {"process.roles": "x"},
            "Invalid value x for configuration process.roles: String must be one of: broker, controller [from here:7]",
        ),
        (
            {"node.id": "1", "broker.id": "2"},
            "You must set `node.id` to the same value as `broker.id`. [from here:7]",
        ),
        (
            {"broker.id": "-3"},
            "Invalid value -3 for configuration node.id: Value must be at least 0 [from here:7]",
        ),
        (
            {"log.roll.ms": "0"},
            "Invalid value 0 for configuration log.roll.ms: Value must be at least 1 [from here:7]",
        ),
        (
            {"log.roll.jitter.ms": "-1"},
            "Invalid value -1 for configuration log.roll.jitter.ms: Value must be at least 0 [from here:7]",
        ),
        (
            {"log.retention.ms": "0"},
            "Invalid value 0 for configuration log.retention.ms: it must be -1 (for ever), or at least 1 [from here:7]",
        ),
        (
            {"queued.max.request.bytes": "5"},
            "queued.max.request.bytes must be at least socket.request.max.bytes, or -1 [from here:7]",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be 0 only where max.connections.per.ip.overrides is set [from here:7]",
        ),
        (
            {"max.connections.per.ip.overrides": "a:1,b"},
            "Invalid value b for configuration max.connections.per.ip.overrides: Expected HOST:COUNT [from here:7]",
        ),
        ({"log.dirs": "/a,/b"}, "log.dirs must name one directory; oncelog keeps one: '/a,/b' [from here:7]"),
        (
            {"authorizer.class.name": "org.example.Mine"},
            "authorizer.class.name=org.example.Mine: oncelog has Kafka's own authorizer only: "
            f"use {STANDARD_AUTHORIZER}, or leave it empty [from here:7]",
        ),
        ({"log.dir": ""}, "log.dir must name one directory; oncelog keeps one: '' [from here:7]"),
        (
            {"group.consumer.migration.policy": "up"},
            "Invalid value up for configuration group.consumer.migration.policy: String must be one of "
            "(case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL [from here:7]",
        ),
    ],
)
def test_errors_name_the_origin(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(texts, dict.fromkeys(texts, "here:7"))
    assert str(caught.value) == message


def test_compaction_lags_must_suit_each_other() -> None:
    texts = {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}
    with pytest.raises(ConfigError, match=r"is above log.cleaner.max.compaction.lag.ms"):
        BrokerConfig(texts)


def test_a_finer_unit_makes_a_zero_in_a_coarser_one_harmless() -> None:
    config = BrokerConfig({"log.retention.hours": "0", "log.retention.ms": "5"})
    assert config.topic_defaults().retention_ms == 5


def test_node_id_and_broker_id_are_one() -> None:
    for name in ("node.id", "broker.id"):
        config = BrokerConfig({name: "7"})
        assert (config.node_id, config.broker_id) == (7, 7)


def test_an_authorizer_puts_its_own_keys_in_effect() -> None:
    keys = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    without = BrokerConfig({"authorizer.class.name": " ", **keys})
    assert (without.authorizer_class_name, without.without_effect) == ("", tuple(keys))
    assert BrokerConfig({"authorizer.class.name": STANDARD_AUTHORIZER, **keys}).without_effect == ()


def test_super_users_have_a_type() -> None:
    texts = {"super.users": "User:a; bob"}
    assert BrokerConfig(texts)
    with pytest.raises(
        ConfigError, match=r"Invalid value bob for configuration super.users: Expected TYPE:NAME"
    ):
        BrokerConfig({"authorizer.class.name": STANDARD_AUTHORIZER, **texts})


def test_no_contradiction_is_reported_for_a_malformed_value() -> None:
    texts = {"group.consumer.max.heartbeat.interval.ms": "x", "group.consumer.heartbeat.interval.ms": "16000"}
    problems: list[str] = []
    BrokerConfig(texts, problems=problems)
    assert problems == [
        "Invalid value x for configuration group.consumer.max.heartbeat.interval.ms: Not a number of type INT"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "4"),
        ("sasl.oauthbearer.assertion.file", "anything"),
        ("zookeeper.connect", "anything"),
        ("zookeeper.ssl.keystore.location", "anything"),
        ("listener.name.internal.ssl.provider", "anything"),
        ("share.coordinator.threads", "3"),
        ("controller.quorum.voters", "anything"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "5"),
        ("super.users", "anything"),
        ("allow.everyone.if.no.acl.found", "anything"),
    ],
)
def test_keys_of_kafka_without_effect_are_listed(name: str, text: str) -> None:
    assert BrokerConfig({name: text}).without_effect == (name,)


def test_keys_without_effect_have_values() -> None:
    config = BrokerConfig({"num.io.threads": " 4 "})
    assert (config.value("num.io.threads"), config.text("num.network.threads")) == (4, "3")
    for name in ("zookeeper.connect", "no.such.key"):
        with pytest.raises(KeyError):
            config.value(name)
    with pytest.raises(ConfigError, match=r"^Invalid value 0 for configuration num.io.threads: "):
        BrokerConfig({"num.io.threads": "0"})


def test_changes_make_a_new_configuration() -> None:
    before = BrokerConfig({"num.partitions": "3"}, {"num.partitions": "-c"})
    after = before.with_changes({"log.retention.ms": "5"})
    assert (before.log_retention_ms, after.log_retention_ms, after.num_partitions) == (None, 5, 3)
    assert after.topic_defaults().retention_ms == 5
    assert before.topic_defaults().retention_ms != 5
    assert after.origins == {"num.partitions": "-c", "log.retention.ms": "dynamic configuration"}
    with pytest.raises(ConfigError, match=r"\[from dynamic configuration\]"):
        before.with_changes({"log.retention.ms": "x"})


def test_the_data_directory() -> None:
    assert BrokerConfig({"log.dir": "/a"}).data_dir == "/a"
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b"}).data_dir == "/b"


def test_connection_limits_by_address() -> None:
    config = BrokerConfig(
        {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7", "max.connections.per.ip": "0"}
    )
    assert config.connection_limits == {"127.0.0.1": 5, "::1": 7}


def test_it_is_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        BrokerConfig().node_id = 5


def test_keys_of_one_listener_have_an_effect_if_the_brokers_have() -> None:
    texts = {
        "listener.name.a.ssl.keystore.location": "x",
        "listener.name.a.plain.sasl.jaas.config": "x",
        "listener.name.a.scram-sha-256.connections.max.reauth.ms": "5",
        "listener.name.a.sasl.enabled.mechanisms": "PLAIN",
    }
    assert BrokerConfig(texts).without_effect == ()
