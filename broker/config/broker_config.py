"""`BrokerConfig`: the broker's configuration, with one attribute per key: ``config.log_segment_bytes`` is
``log.segment.bytes``."""

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
    """The values of all keys; immutable. Keys without a text in ``texts`` have their defaults.

    ``texts`` maps each key that was set to its text, ``origins`` to where it was set, for messages
    (``server.properties:12``, ``-c``, ``KAFKA_NUM_PARTITIONS``). In DescribeConfigs the source of all of them is
    STATIC_BROKER_CONFIG. ``without_effect`` names the keys that were set and that Kafka has, but that have no effect in
    oncelog. ``connection_limits`` maps addresses to limits (``max.connections.per.ip.overrides``).

    Raises ConfigError with key, value and origin for every unknown key and every invalid value. If ``problems`` is
    given, they are added to that list instead, and the keys have their defaults."""

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
                self._set(name, text)
            except ConfigError as error:
                refused[name] = str(error)
        put(self, "without_effect", tuple(name for name in given if not _in_effect(name)))
        self._align_node_ids(given, given_by)
        put(self, "connection_limits", connection_limits(self.max_connections_per_ip_overrides))
        errors = [self._with_origin(name, why) for name, why in refused.items()]
        for names, why in contradictions(self):
            if refused.keys().isdisjoint(names):
                errors.append(self._with_origin(names[0], why))
        if problems is not None:
            problems += errors
        elif errors:
            raise ConfigError(*errors)

    if TYPE_CHECKING:
        texts: Mapping[str, str]
        origins: Mapping[str, str]
        without_effect: tuple[str, ...]
        connection_limits: Mapping[str, int]
        _topic_defaults: TopicConfig | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable ({name})")

    def value(self, name: str) -> Value:
        """Return the value of a key. Raises KeyError if neither Kafka nor oncelog has the key."""
        known = BrokerConfig.KEYS.get(name)
        if known is not None:
            found: Value = getattr(self, known.attribute)
            return found
        other = key_of(name)
        if other is None:
            raise KeyError(name)
        return other.parse(self.texts[name]) if name in self.texts else other.default

    def text(self, name: str) -> str | None:
        """Return the value of a key as Kafka writes it, None for a null. Raises KeyError as `value` does."""
        value, known = self.value(name), key_of(name)
        assert known is not None
        return known.to_text(value)

    def with_changes(self, texts: Mapping[str, str], origin: str = "dynamic configuration") -> BrokerConfig:
        """Return a copy with other values for some keys, such as dynamic ones. Raises ConfigError."""
        return BrokerConfig({**self.texts, **texts}, {**self.origins, **dict.fromkeys(texts, origin)})

    def topic_defaults(self) -> TopicConfig:
        """Return the configuration of a topic without overrides. It is computed once."""
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
        """Return the first value that is not null among several keys, multiplied by the key's factor."""
        for name, factor in synonyms:
            found = self.value(name)
            if found is not None:
                return found if factor == 1 else found * factor
        raise KeyError(synonyms)

    def _set(self, name: str, text: str) -> None:
        """Set one key. Raises ConfigError for an unknown key or an invalid value."""
        known = BrokerConfig.KEYS.get(name)
        if known is not None:
            object.__setattr__(self, known.attribute, known.parse(text))
        elif (other := key_of(name)) is not None:
            other.parse(text)  # without effect, but Kafka does not start with an invalid value
        elif not is_known(name):
            shown = "[hidden]" if is_secret(name) else text
            raise ConfigError(f"Unknown configuration {name} (value {shown})")

    def _align_node_ids(self, given: dict[str, str], given_by: dict[str, str]) -> None:
        """If only one of ``node.id`` and ``broker.id`` is set, give the other the same value.

        Source: ``AbstractKafkaConfig.populateSynonyms``."""
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
    """Return the key with this name: one of `BrokerConfig`, or one of Kafka's without effect here, or None."""
    found = BrokerConfig.KEYS.get(name)
    if found is None:
        from oncelog.broker.config.definitions_known import keys_without_effect

        found = keys_without_effect().get(name)
    return found


def is_known(name: str) -> bool:
    """Whether Kafka or oncelog has a key with this name, with effect here or without."""
    if name in BrokerConfig.KEYS:
        return True
    from oncelog.broker.config.definitions_known import is_known

    return is_known(name)


def _in_effect(name: str) -> bool:
    known = BrokerConfig.KEYS.get(name)
    return known is not None and known.in_effect
