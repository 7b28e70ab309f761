"""Parsing and writing of values. The expected results are those of ``ConfigDef`` of Kafka 4.3.1."""

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import DOUBLE, ConfigError, ConfigKey, KeyCollector, key
from oncelog.broker.config.definitions_known import (
    AUTHORIZER_KEYS,
    REMOVED_KEYS,
    is_known_without_effect,
    keys_without_effect,
    listener_base,
)
from oncelog.broker.config.topic_config import TopicConfig

PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "BOOLEAN": (bool,),
    "STRING": (str,),
    "INT": (int,),
    "SHORT": (int,),
    "LONG": (int,),
    "DOUBLE": (float,),
    "LIST": (tuple,),
    "PASSWORD": (str,),
}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 2000000\t", 2_000_000),
        ("segment.bytes", "+2000000", 2_000_000),
        ("segment.bytes", "0002000000", 2_000_000),
        ("flush.ms", "9223372036854775807", 2**63 - 1),
        ("retention.bytes", "-9223372036854775808", -(2**63)),
        ("preallocate", " TRUE ", True),
        ("preallocate", "False", False),
        ("min.cleanable.dirty.ratio", "0.5d", 0.5),
        ("min.cleanable.dirty.ratio", ".25", 0.25),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "", ()),
        ("leader.replication.throttled.replicas", "1:2, 3:4", ("1:2", "3:4")),
        ("leader.replication.throttled.replicas", "1:2,1:2,", ("1:2", "1:2", "")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("compression.type", " gzip ", "gzip"),
    ],
)
def test_parse(name: str, text: str, value: object) -> None:
    assert TopicConfig.KEYS[name].parse(text) == value


def test_nan_is_within_every_range() -> None:
    # Kafka compares doubles, and so takes it.
    ratio = TopicConfig.KEYS["min.cleanable.dirty.ratio"]
    assert ratio.to_text(ratio.parse("NaN")) == "NaN"


@pytest.mark.parametrize(
    "text", ["", " ", "x", "1.5", "2_000_000", "0x10", "1 2", "99999999999", "2147483648", "--1", "+", "²"]
)
def test_not_an_int(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.KEYS["segment.bytes"].parse(text)
    assert (
        str(caught.value) == f"Invalid value {text} for configuration segment.bytes: Not a number of type INT"
    )


def test_a_very_long_number_is_refused_without_converting_it() -> None:
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        TopicConfig.KEYS["flush.ms"].parse("9" * 1_000_000)


@pytest.mark.parametrize("text", ["", "x", "1_0.5", "inf", "nan", "0.5x", "infinity"])
def test_not_a_double(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        TopicConfig.KEYS["min.cleanable.dirty.ratio"].parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-0.25, "-0.25"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert TopicConfig.KEYS["min.cleanable.dirty.ratio"].to_text(value) == text


@pytest.mark.parametrize("config", [BrokerConfig(), BrokerConfig().topic_defaults()])
def test_every_default_is_the_value_of_its_text(config: BrokerConfig | TopicConfig) -> None:
    for name, found in type(config).KEYS.items():
        value, text = config.value(name), config.text(name)
        if text is None:
            assert value is None
        else:
            assert isinstance(value, PYTHON_TYPES[found.type.name]), name
            assert found.parse(text) == value, name


def test_every_key_has_a_sentence_that_names_its_unit() -> None:
    units = {"ms": "millisecond", "bytes": "byte", "minutes": "minute", "hours": "hour"}
    others = keys_without_effect()
    for found in (*BrokerConfig.KEYS.values(), *TopicConfig.KEYS.values(), *others.values()):
        assert found.documentation.endswith("."), found.name
        unit = units.get(found.name.rsplit(".", 1)[-1])
        text = found.documentation.lower()
        assert unit is None or unit in text or "as segment.bytes" in text, found.name


def test_a_key_is_declared_or_known_but_not_both() -> None:
    for name in BrokerConfig.KEYS:
        assert not is_known_without_effect(name), name
    assert not keys_without_effect().keys() & (REMOVED_KEYS | AUTHORIZER_KEYS)


def test_the_table_of_keys_without_effect() -> None:
    found = keys_without_effect()
    assert len(found) == 131
    assert not any(found.in_effect for found in found.values())
    threads, providers, offset = (
        found[name] for name in ("num.io.threads", "config.providers", "remote.log.index.file.cache.ttl.ms")
    )
    assert (threads.type.name, threads.default, threads.at_least, threads.at_most) == ("INT", 8, 1, None)
    assert (threads.update_mode.name, threads.internal) == ("CLUSTER_WIDE", False)
    assert (providers.type.name, providers.default) == ("LIST", ())
    assert (offset.default, offset.at_least, offset.internal) == (900_000, -1, True)
    assert found["security.inter.broker.protocol"].choices[-1] == "SASL_SSL"
    assert found["sasl.oauthbearer.assertion.private.key.passphrase"].sensitive
    assert found["sasl.oauthbearer.assertion.private.key.passphrase"].default is None
    manager = str(found["remote.log.metadata.manager.class.name"].default)
    assert manager.endswith(".TopicBasedRemoteLogMetadataManager")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("ssl.keystore.location", None),
    ],
)
def test_keys_of_one_listener(name: str, base: str | None) -> None:
    assert listener_base(name) == base


def test_a_password_is_never_shown() -> None:
    secret = ConfigKey.__new__(ConfigKey)
    for slot in ConfigKey.__slots__:
        setattr(secret, slot, getattr(BrokerConfig.KEYS["broker.rack"], slot))
    secret.type = BrokerConfig.KEYS["broker.rack"].type.__class__.PASSWORD
    assert secret.sensitive
    assert "hunter2" not in str(secret.refusal("hunter2", "no"))


def test_a_class_collects_the_keys_of_its_bases() -> None:
    class Base(metaclass=KeyCollector, in_effect=False):
        __slots__ = ()
        a_b: float = key(DOUBLE, 0.5, "A.")

    class Values(Base, metaclass=KeyCollector, with_values=True):
        __slots__ = ("more",)
        c: float = key(DOUBLE, 1.5, "C.")

    assert list(Values.KEYS) == ["a.b", "c"]
    assert Values.__slots__ == ("more", "a_b", "c")  # type: ignore[comparison-overlap]
    assert [found.in_effect for found in Values.KEYS.values()] == [False, True]
