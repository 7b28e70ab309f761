"""`BrokerConfig`: the broker's configuration, with one attribute per key: ``config.log_segment_bytes`` is
``log.segment.bytes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from oncelog.broker.config.checks import ALL_LOG_DIRS, connection_limits, contradictions
from oncelog.broker.config.definitions import ConfigError, ConfigKey, KeyCollector, Value, is_secret
from oncelog.broker.config.definitions_cluster import ClusterKeys, ReplicationKeys
from oncelog.broker.config.definitions_coordinators import GroupKeys, TransactionKeys
from oncelog.broker.config.definitions_log import LogKeys
from oncelog.broker.config.definitions_node import OPTIMIZATIONS, ListenerKeys, NodeKeys, OwnKeys, RequestKeys
from oncelog.broker.config.definitions_security import (
    DelegationTokenKeys,
    LoginKeys,
    OAuthKeys,
    SaslKeys,
    TlsKeys,
)
from oncelog.broker.config.definitions_share_streams import (
    ShareCoordinatorKeys,
    ShareGroupKeys,
    StreamsGroupKeys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.config.topic_config import TopicConfig

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000


class BrokerConfig(
    NodeKeys,
    ClusterKeys,
    ListenerKeys,
    RequestKeys,
    LogKeys,
    ReplicationKeys,
    GroupKeys,
    ShareGroupKeys,
    ShareCoordinatorKeys,
    StreamsGroupKeys,
    TransactionKeys,
    LoginKeys,
    SaslKeys,
    OAuthKeys,
    DelegationTokenKeys,
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
    given, they are added to that list instead, and the keys have their defaults. ``is_consistent``: what keys require
    of each other was checked, with these texts but for those that tell nodes apart."""

    __slots__ = ("_topic_defaults", "connection_limits", "origins", "texts", "without_effect")

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        origins: Mapping[str, str] | None = None,
        problems: list[str] | None = None,
        *,
        is_consistent: bool = False,
    ) -> None:
        put = object.__setattr__
        set_texts, set_origins = dict(texts or {}), dict(origins or {})
        put(self, "texts", set_texts)
        put(self, "origins", set_origins)
        put(self, "_topic_defaults", None)
        for key in BrokerConfig.KEYS.values():
            put(self, key.attribute, key.default)
        invalid: dict[str, str] = {}
        for name, text in set_texts.items():
            try:
                self._set(name, text)
            except ConfigError as error:
                invalid[name] = str(error)
        if not self.oncelog_optimizations_enable:
            for attribute in OPTIMIZATIONS:
                put(self, attribute, False)
        put(self, "without_effect", tuple(name for name in set_texts if not self.has_effect(name)))
        self._align_node_ids(set_texts, set_origins)
        put(self, "connection_limits", connection_limits(self.max_connections_per_ip_overrides))
        errors = [self._with_origin(name, message) for name, message in invalid.items()]
        for names, message in () if is_consistent else contradictions(self):
            if invalid.keys().isdisjoint(names):
                errors.append(self._with_origin(names[0], message))
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
        key = BrokerConfig.KEYS.get(name)
        if key is not None:
            value: Value = getattr(self, key.attribute)
            return value
        without_effect = key_of(name)
        if without_effect is None:
            raise KeyError(name)
        return without_effect.parse(self.texts[name]) if name in self.texts else without_effect.default

    def text(self, name: str) -> str | None:
        """Return the value of a key as Kafka writes it, None for a null. Raises KeyError as `value` does."""
        value, key = self.value(name), key_of(name)
        assert key is not None
        return key.to_text(value)

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

    @property
    def is_data_dir_cordoned(self) -> bool:
        """Whether the data directory gets no new partitions."""
        return not {ALL_LOG_DIRS, self.data_dir}.isdisjoint(self.cordoned_log_dirs)

    def first_set(self, synonyms: tuple[tuple[str, int], ...]) -> Value:
        """Return the first value that is not null among several keys, multiplied by the key's factor."""
        for name, factor in synonyms:
            value = self.value(name)
            if value is not None:
                return value if factor == 1 else value * factor
        raise KeyError(synonyms)

    def _set(self, name: str, text: str) -> None:
        """Set one key. Raises ConfigError for an unknown key or an invalid value."""
        key = BrokerConfig.KEYS.get(name)
        if key is not None:
            object.__setattr__(self, key.attribute, key.parse(text))
        elif (without_effect := key_of(name)) is not None:
            without_effect.parse(text)  # Kafka does not start with an invalid value
        elif not is_known(name):
            from difflib import get_close_matches

            from oncelog.broker.config.group_config import GroupConfig

            shown = "[hidden]" if is_secret(name) else text
            close = get_close_matches(name, BrokerConfig.KEYS, 1, 0.8)
            meant = f"; did you mean {close[0]}?" if close else ""
            if name in GroupConfig.KEYS:
                meant = "; it is a key of groups: kafka-configs --entity-type groups sets it"
            raise ConfigError(f"Unknown configuration {name} (value {shown}){meant}")
        elif (intended := misspelt(name)) is not None:
            shown = "[hidden]" if is_secret(name) or is_secret(intended) else text
            raise ConfigError(f"Unknown configuration {name} (value {shown}); did you mean {intended}?")
        elif (limit := name.rpartition(".max.connection")[2]) in ("s", ".creation.rate"):
            BrokerConfig.KEYS[f"max.connection{limit}"].parse(text)  # of one listener

    def _align_node_ids(self, texts: dict[str, str], origins: dict[str, str]) -> None:
        """If only one of ``node.id`` and ``broker.id`` is set, give the other the same value.

        Source: ``AbstractKafkaConfig.populateSynonyms``."""
        if "node.id" not in texts and "broker.id" not in texts:
            object.__setattr__(self, "broker_id", self.node_id)
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if other in texts and name not in texts:
                object.__setattr__(self, BrokerConfig.KEYS[name].attribute, self.value(other))
                texts[name] = texts[other]
                origins[name] = origins.get(other, "")

    def has_effect(self, name: str, *, on_proxy: bool = False) -> bool:
        """Whether setting a key changes anything in a broker, or in a proxy, with this configuration."""

        def is_used(key: ConfigKey) -> bool:
            if key.of_several_nodes and self.oncelog_nodes == 1:
                return False
            return key.in_effect and (not on_proxy or bool(key.of_proxies))

        key = BrokerConfig.KEYS.get(name)
        if key is not None:
            return is_used(key)
        from oncelog.broker.config.definitions_known import AUTHORIZER_KEYS, LISTENER_PREFIX

        if name.startswith(LISTENER_PREFIX):
            # A listener's own KEY, or MECHANISM.KEY.
            base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
            if base.partition(".")[2] == "sasl.jaas.config":
                return True
            keys = (BrokerConfig.KEYS.get(one) for one in (base, base.partition(".")[2]))
            return any(is_used(key) for key in keys if key is not None)
        return name in AUTHORIZER_KEYS and bool(self.authorizer_class_name)

    def _with_origin(self, name: str, message: str) -> str:
        origin = self.origins.get(name)
        return f"{message} [from {origin}]" if origin else message


def key_of(name: str) -> ConfigKey | None:
    """Return the key with this name: one of `BrokerConfig`, or one of Kafka's without effect here, or None."""
    key = BrokerConfig.KEYS.get(name)
    if key is None:
        from oncelog.broker.config.definitions_known import keys_without_effect

        key = keys_without_effect().get(name)
    return key


def is_known(name: str) -> bool:
    """Whether Kafka or oncelog has a key with this name, with effect here or without."""
    if name in BrokerConfig.KEYS:
        return True
    from oncelog.broker.config.definitions_known import is_known_without_effect

    return is_known_without_effect(name)


def misspelt(name: str) -> str | None:
    """Return the key of a listener that ``name`` seems to mean, None if it is one, or like none.

    Plug-ins have keys that Kafka does not know, so those that are like none are let through, as in Kafka.
    """
    from oncelog.broker.config.definitions_known import MECHANISM_KEYS, listener_base

    base = listener_base(name)
    if base is None or is_known(base) or base in MECHANISM_KEYS:
        return None
    from difflib import get_close_matches

    own = base.partition(".")[2]
    before = name.removesuffix(base)
    if is_known(own):
        return None
    known = [key for key in BrokerConfig.KEYS if key.startswith(("ssl.", "sasl."))] + list(MECHANISM_KEYS)
    for prefix, key in (("", base), (base.removesuffix(own), own)):
        close = get_close_matches(key, known, 1, 0.85)
        if close:
            return before + prefix + close[0]
    return None
