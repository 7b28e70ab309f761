"""`BrokerConfig`: the broker's configuration, an attribute per key (``log.segment.bytes`` is
``config.log_segment_bytes``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from oncelog.broker.config.checks import connection_limits, contradictions
from oncelog.broker.config.definitions import ConfigError, ConfigKey, KeyCollector, Value, is_secret
from oncelog.broker.config.definitions_coordinators import GroupKeys, TransactionKeys
from oncelog.broker.config.definitions_log import LogKeys
from oncelog.broker.config.definitions_node import NetworkKeys, NodeKeys, OwnKeys
from oncelog.broker.config.definitions_security import SaslKeys, TlsKeys
from oncelog.broker.config.definitions_share_streams import ShareGroupKeys, StreamsGroupKeys

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
    ShareGroupKeys,
    StreamsGroupKeys,
    TransactionKeys,
    SaslKeys,
    TlsKeys,
    OwnKeys,
    metaclass=KeyCollector,
    with_values=True,
):
    """All keys' values; immutable. Built from the texts that were given, all other keys have their defaults.

    `texts`: what was given, key -> text. `origins`: where each of them came from, for messages
    (``server.properties:12``, ``-c``, ``KAFKA_NUM_PARTITIONS``); DescribeConfigs calls all of these
    STATIC_BROKER_CONFIG. `without_effect`: the given keys that Kafka knows and oncelog does nothing with, or
    nothing yet. `connection_limits`: max.connections.per.ip.overrides, address -> connections.

    Raises `ConfigError`, naming key, value and origin, for every unknown key, and for every value that a key cannot
    have; given a list of `problems`, adds those to it instead (the keys have their defaults then)."""

    __slots__ = ("_topic_defaults", "connection_limits", "origins", "texts", "without_effect")

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        origins: Mapping[str, str] | None = None,
        problems: list[str] | None = None,
    ) -> None:
        put = object.__setattr__
        given, given_by = dict(texts or {}), dict(origins or {})
        put(self, "texts", given)
        put(self, "origins", given_by)
        put(self, "_topic_defaults", None)
        for found in BrokerConfig.KEYS.values():
            put(self, found.attribute, found.default)
        refused: dict[str, str] = {}
        for name, text in given.items():
            try:
                self._take(name, text)
            except ConfigError as error:
                refused[name] = str(error)
        put(self, "without_effect", tuple(name for name in given if not _in_effect(name)))
        self._join_node_id(given, given_by)
        put(self, "connection_limits", connection_limits(self.max_connections_per_ip_overrides))
        found_wrong = [self._with_origin(name, why) for name, why in refused.items()]
        for names, why in contradictions(self):
            if refused.keys().isdisjoint(names):
                found_wrong.append(self._with_origin(names[0], why))
        if problems is not None:
            problems += found_wrong
        elif found_wrong:
            raise ConfigError(*found_wrong)

    if TYPE_CHECKING:
        texts: Mapping[str, str]
        origins: Mapping[str, str]
        without_effect: tuple[str, ...]
        connection_limits: Mapping[str, int]
        _topic_defaults: TopicConfig | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable ({name})")

    def value(self, name: str) -> Value:
        """The value of the key `name`. Raises KeyError for one that neither Kafka defines nor oncelog."""
        known = BrokerConfig.KEYS.get(name)
        if known is not None:
            found: Value = getattr(self, known.attribute)
            return found
        other = key_of(name)
        if other is None:
            raise KeyError(name)
        return other.parse(self.texts[name]) if name in self.texts else other.default

    def text(self, name: str) -> str | None:
        """The value of the key `name` as Kafka writes it; None for a null. Raises KeyError as `value` does."""
        value, known = self.value(name), key_of(name)
        assert known is not None
        return known.to_text(value)

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

    def _take(self, name: str, text: str) -> None:
        """Set one key. Raises `ConfigError` where there is no such key, or it cannot have this value."""
        known = BrokerConfig.KEYS.get(name)
        if known is not None:
            object.__setattr__(self, known.attribute, known.parse(text))
        elif (other := key_of(name)) is not None:
            other.parse(text)  # it changes nothing, but Kafka would not start with any value either
        elif not is_known(name):
            shown = "[hidden]" if is_secret(name) else text
            raise ConfigError(f"Unknown configuration {name} (value {shown})")

    def _join_node_id(self, given: dict[str, str], given_by: dict[str, str]) -> None:
        """``node.id`` and ``broker.id`` are one thing (``AbstractKafkaConfig.populateSynonyms``)."""
        if "node.id" not in given and "broker.id" not in given:
            object.__setattr__(self, "broker_id", self.node_id)
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if other in given and name not in given:
                object.__setattr__(self, BrokerConfig.KEYS[name].attribute, self.value(other))
                given[name] = given[other]
                given_by[name] = given_by.get(other, "")

    def _with_origin(self, name: str, why: str) -> str:
        origin = self.origins.get(name)
        return f"{why} [from {origin}]" if origin else why


def key_of(name: str) -> ConfigKey | None:
    """The key of that name: a declared one, else one of Kafka's that does nothing here."""
    found = BrokerConfig.KEYS.get(name)
    if found is None:
        from oncelog.broker.config.definitions_known import keys_without_effect

        found = keys_without_effect().get(name)
    return found


def is_known(name: str) -> bool:
    """Whether `name` is a key of Kafka's or ours, in effect here or not."""
    if name in BrokerConfig.KEYS:
        return True
    from oncelog.broker.config.definitions_known import is_known

    return is_known(name)


def _in_effect(name: str) -> bool:
    known = BrokerConfig.KEYS.get(name)
    return known is not None and known.in_effect
