"""`BrokerConfig`: the broker's configuration, an attribute per key (``log.segment.bytes`` is
``config.log_segment_bytes``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from oncelog.broker.config.definitions import ConfigError, Declared, Key, Value, is_secret
from oncelog.broker.config.definitions_coordinators import GroupKeys, TransactionKeys
from oncelog.broker.config.definitions_log import LogKeys
from oncelog.broker.config.definitions_node import NetworkKeys, NodeKeys, OwnKeys
from oncelog.broker.config.definitions_security import SaslKeys, TlsKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.config.topic_config import TopicConfig

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000


class BrokerConfig(
    NodeKeys,
    NetworkKeys,
    LogKeys,
    GroupKeys,
    TransactionKeys,
    SaslKeys,
    TlsKeys,
    OwnKeys,
    metaclass=Declared,
    record=True,
):
    """All keys' values; immutable. Built from the texts that were given, all other keys have their defaults.

    `texts`: what was given, key -> text. `origins`: where each of them came from, for messages
    (``server.properties:12``, ``-c``, ``KAFKA_NUM_PARTITIONS``); DescribeConfigs calls all of these
    STATIC_BROKER_CONFIG. `without_effect`: the given keys that Kafka knows and oncelog does nothing with, or
    nothing yet. `connection_limits`: max.connections.per.ip.overrides, address -> connections.

    Raises `ConfigError`, naming the key, its value and its origin, for an unknown key or a value that it
    cannot have."""

    __slots__ = ("_topic_defaults", "connection_limits", "origins", "texts", "without_effect")

    def __init__(
        self, texts: Mapping[str, str] | None = None, origins: Mapping[str, str] | None = None
    ) -> None:
        put = object.__setattr__
        given = dict(texts or {})
        put(self, "texts", given)
        put(self, "origins", dict(origins or {}))
        put(self, "_topic_defaults", None)
        for found in BrokerConfig.KEYS.values():
            put(self, found.attribute, found.default)
        without_effect = []
        for name, text in given.items():
            known = BrokerConfig.KEYS.get(name)
            if known is not None:
                put(self, known.attribute, self._parsed(known, text))
            if known is None and not _is_known(name):
                shown = "[hidden]" if is_secret(name) else text
                self._refuse(name, f"Unknown configuration {name} (value {shown})")
            if known is None or not known.in_effect:
                without_effect.append(name)
        put(self, "without_effect", tuple(without_effect))
        _join_node_id(self)
        put(self, "connection_limits", _connection_limits(self))
        _check_together(self)

    if TYPE_CHECKING:
        texts: Mapping[str, str]
        origins: Mapping[str, str]
        without_effect: tuple[str, ...]
        connection_limits: Mapping[str, int]
        _topic_defaults: TopicConfig | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable ({name})")

    def value(self, name: str) -> Value:
        """The value of the key `name`. Raises KeyError for a key that is not declared."""
        found: Value = getattr(self, BrokerConfig.KEYS[name].attribute)
        return found

    def text(self, name: str) -> str | None:
        """The value of the key `name` as Kafka writes it; None for a null."""
        return BrokerConfig.KEYS[name].to_text(self.value(name))

    def with_changes(self, texts: Mapping[str, str], origin: str = "dynamic configuration") -> BrokerConfig:
        """This configuration with some keys set otherwise: what dynamic broker configs make of it."""
        return BrokerConfig({**self.texts, **texts}, {**self.origins, **dict.fromkeys(texts, origin)})

    def topic_defaults(self) -> TopicConfig:
        """What a topic without overrides has; made once."""
        if self._topic_defaults is None:
            from oncelog.broker.config.topic_config import TopicConfig

            object.__setattr__(self, "_topic_defaults", TopicConfig.defaults_of(self))
        assert self._topic_defaults is not None
        return self._topic_defaults

    @property
    def data_dir(self) -> str:
        """The data directory."""
        return (self.log_dirs or self.log_dir)[0]

    def first_set(self, synonyms: tuple[tuple[str, int], ...]) -> Value:
        """The value of the first of several keys that is not null, times the factor that comes with it."""
        for name, factor in synonyms:
            found = self.value(name)
            if found is not None:
                return found if factor == 1 else found * factor
        raise KeyError(synonyms)

    def _parsed(self, known: Key, text: str) -> Value:
        try:
            return known.parse(text)
        except ConfigError as error:
            self._refuse(known.name, str(error))

    def _refuse(self, name: str, why: str) -> NoReturn:
        origin = self.origins.get(name)
        raise ConfigError(f"{why} [from {origin}]" if origin else why)


def _is_known(name: str) -> bool:
    from oncelog.broker.config.definitions_known import is_known

    return is_known(name)


def _connection_limits(config: BrokerConfig) -> dict[str, int]:
    found = {}
    for pair in filter(None, map(str.strip, config.max_connections_per_ip_overrides.split(","))):
        address, _, count = pair.rpartition(":")
        if not address or not (count.isascii() and count.isdecimal()):
            name = "max.connections.per.ip.overrides"
            config._refuse(name, f"Invalid value {pair} for configuration {name}: Expected HOST:COUNT")
        found[address] = int(count)
    return found


def _join_node_id(config: BrokerConfig) -> None:
    """``broker.id`` and ``node.id`` are one thing (``AbstractKafkaConfig.populateSynonyms``)."""
    if "node.id" not in config.texts and "broker.id" in config.texts:
        object.__setattr__(config, "node_id", config.broker_id)
    elif "broker.id" not in config.texts:
        object.__setattr__(config, "broker_id", config.node_id)
    if config.node_id != config.broker_id:
        config._refuse("broker.id", "You must set `node.id` to the same value as `broker.id`.")
    if config.node_id < 0:
        config._refuse(
            "broker.id", f"Invalid value {config.node_id} for configuration node.id: Value must be at least 0"
        )


def _check_together(config: BrokerConfig) -> None:
    """What ``KafkaConfig.validateValues`` says of keys that must suit each other."""
    roll_ms = config.log_roll_ms
    if roll_ms is not None and roll_ms < 1:
        config._refuse(
            "log.roll.ms", f"Invalid value {roll_ms} for configuration log.roll.ms: Value must be at least 1"
        )
    jitter_ms = config.log_roll_jitter_ms
    if jitter_ms is not None and jitter_ms < 0:
        config._refuse(
            "log.roll.jitter.ms",
            f"Invalid value {jitter_ms} for configuration log.roll.jitter.ms: Value must be at least 0",
        )
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config.value(name) == 0 and config.topic_defaults().retention_ms == 0:
            config._refuse(
                name, f"Invalid value 0 for configuration {name}: it must be -1 (for ever), or at least 1"
            )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        config._refuse(
            "queued.max.request.bytes",
            "queued.max.request.bytes must be at least socket.request.max.bytes, or -1",
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        config._refuse(
            "max.connections.per.ip",
            "max.connections.per.ip can be 0 only where max.connections.per.ip.overrides is set",
        )
    if "broker" not in config.process_roles:
        config._refuse("process.roles", "process.roles must have broker in it, that is what oncelog is")
    for name in ("log.dirs", "log.dir"):
        directories = config.value(name)
        if isinstance(directories, tuple) and len(directories) != 1:
            config._refuse(
                name,
                f"{name} must name one directory; oncelog keeps one: {','.join(directories)!r}",
            )
    _check_consumer_groups(config)
    policy = config.topic_defaults()
    if policy.min_compaction_lag_ms > policy.max_compaction_lag_ms:
        config._refuse(
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms",
        )


def _check_consumer_groups(config: BrokerConfig) -> None:
    """What ``GroupCoordinatorConfig`` requires of consumer groups' limits, in its order and words."""
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        name, least, most = (f"group.consumer.{limit}{what}" for limit in ("", "min.", "max."))
        for more, less in ((most, least), (name, least)):
            if _number(config, more) < _number(config, less):
                config._refuse(more, f"{more} must be greater than or equal to {less}")
        if _number(config, name) > _number(config, most):
            config._refuse(name, f"{name} must be less than or equal to {most}")
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        name = "group.consumer.heartbeat.interval.ms"
        config._refuse(name, f"{name} must be less than group.consumer.session.timeout.ms")


def _number(config: BrokerConfig, name: str) -> int:
    value = config.value(name)
    assert isinstance(value, int)
    return value
