"""Configured values with their sources and synonyms, as DescribeConfigs and CreateTopics return them.

A broker key has the first of these values: dynamic for this broker, dynamic for all brokers, static (from the start),
default. A topic key has the topic's override, or the value of the broker key that is its default. Source: Kafka's
``ConfigHelper``, ``DynamicBrokerConfig``, ``KafkaConfigSchema``; KIP-133, KIP-226, KIP-569.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.client_metrics_config import ClientMetricsConfig
from oncelog.broker.config.definitions import ConfigKey, UpdateMode
from oncelog.broker.config.definitions_security import SaslKeys, TlsKeys
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.config.group_config import GroupConfig
from oncelog.broker.config.topic_config import TopicConfig, parse_topic_overrides
from oncelog.broker.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopicConfigs
from oncelog.wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

# Where a value comes from (``DescribeConfigsResponse.ConfigSource``).
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8

UNKNOWN_TYPE = 0
"""``DescribeConfigsResponse.ConfigType``."""

VALUE_CHARS_MAX = 32767
"""The length of a configuration value, in characters."""

READ_AT_START = frozenset({"listeners", "listener.security.protocol.map"})
"""Broker keys that Kafka changes dynamically and oncelog does not: listeners are opened once."""

NODE_ID_DIGITS_MAX = 10

# One source of values: the texts by key, and the source's number in DescribeConfigs.
ConfigSource = tuple["Mapping[str, str | None]", int]
ConfigSources = tuple[ConfigSource, ...]

_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
# The scheduler's interval is the default of log.flush.interval.ms, not a synonym of it.
_SYNONYMS_OF = {name: names for names in _SYNONYMS for name in names if "scheduler" not in name}


def effective_topic_config(image: MetadataImage, config: BrokerConfig, topic: str) -> TopicConfig:
    """Return the topic's overrides, with defaults from ``config``, the broker's current configuration."""
    return TopicConfig.effective(image.configs.get((TOPIC, topic), {}), config)


def dynamic_broker_texts(image: MetadataImage, node_id: int) -> dict[str, str]:
    """Return the texts set dynamically on a broker, by key: those of all brokers, overridden by its own."""
    configs = image.configs
    return {
        **dynamic_texts(configs.get((BROKER, ""), {})),
        **dynamic_texts(configs.get((BROKER, str(node_id)), {})),
    }


def dynamic_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``texts`` whose keys are dynamic. Others may be there too: stored by Kafka, or by a version in
    which they were dynamic.
    """
    keys = ((name, text, dynamic_key(name)) for name, text in texts.items())
    return {name: text for name, text, key in keys if key is not None and is_dynamic(key)}


def dynamic_key(name: str) -> ConfigKey | None:
    """Return the key of that name, also of one for a single listener (``listener.name.NAME.KEY``), or None."""
    key = BrokerConfig.KEYS.get(name)
    if key is None:
        from oncelog.broker.config.definitions_known import listener_base

        key = BrokerConfig.KEYS.get(listener_base(name) or "")
    return key


def parse_node_id(text: str) -> int | None:
    """Return the node id in a resource's name, as Java's ``Integer.parseInt`` reads it, or None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > NODE_ID_DIGITS_MAX:
        return None
    return int(text)


def check_topic_overrides(config: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return ``overrides`` if a topic may have all of them. Raises KafkaError (INVALID_CONFIG) otherwise."""
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        text = "Null value not supported for topic configs: " + ",".join(nulls)
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    values = {name: value for name, value in overrides.items() if value is not None}
    if any(len(value) > VALUE_CHARS_MAX for value in values.values()):
        raise value_too_long()
    parse_topic_overrides(values, config.topic_defaults())
    return values


def value_too_long() -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of "
        f"{VALUE_CHARS_MAX} bytes.",
    )


def topic_rows(
    image: MetadataImage,
    config: DynamicBrokerConfig,
    topic: str,
    names: list[str] | None,
    *,
    documentation: bool,
) -> list[DescribeConfigsResourceResult]:
    """Return the topic's keys (all, or those in ``names``), by name, each with its value, source and synonyms."""
    overrides = image.configs.get((TOPIC, topic), {})
    effective = TopicConfig.effective(overrides, config.current)
    sources, requested = _config_sources(image, config), frozenset(names or ())
    rows = []
    for name, key in sorted(TopicConfig.KEYS.items()):
        if (requested and name not in requested) or (key.internal and name not in overrides):
            continue
        text = effective.text(name)
        synonyms = _broker_synonyms(sources, key.synonyms[0][0]) if key.synonyms else []
        if name in overrides:
            synonyms.insert(0, DescribeConfigsSynonym(name, text, DYNAMIC_TOPIC_CONFIG))
        rows.append(_row(key, text, synonyms, read_only=False, documentation=documentation))
    return rows


def creation_rows(
    image: MetadataImage, config: DynamicBrokerConfig, overrides: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """Return a new topic's configuration as CreateTopics returns it, by name.

    A default may come from any synonym among the broker keys, while `topic_rows` looks for the first synonym only.
    """
    effective = TopicConfig.effective(overrides, config.current)
    sources = _config_sources(image, config)
    rows = []
    for name, key in sorted(TopicConfig.KEYS.items()):
        if key.internal and name not in overrides:
            continue
        text, source = effective.text(name), DEFAULT_CONFIG
        if name in overrides:
            text, source = overrides[name], DYNAMIC_TOPIC_CONFIG
        else:
            for texts, set_in in sources:
                if any(synonym in texts for synonym, _ in key.synonyms):
                    source = set_in
                    break
        rows.append(
            CreatableTopicConfigs(name, None if key.sensitive else text, False, source, key.sensitive)
        )
    return rows


def broker_rows(
    image: MetadataImage, config: DynamicBrokerConfig, names: list[str] | None, *, documentation: bool
) -> list[DescribeConfigsResourceResult]:
    """Return the broker's keys (all, or those in ``names``) with their values, sources and synonyms.

    These are all of Kafka's, those without effect too, and anything else the broker was started with.
    """
    sources, requested = _config_sources(image, config), frozenset(names or ())
    keys, set_texts = broker_keys(), config.current.texts
    rows = []
    every = {*keys, *set_texts}
    for name in sorted(requested & every if requested else every):
        key = keys.get(name)
        if key is None:
            rows.append(_row_without_key(name, sources))
        elif not key.internal or name in set_texts:
            text = config.current.text(name)
            synonyms = _broker_synonyms(sources, name)
            rows.append(_row(key, text, synonyms, read_only=not is_dynamic(key), documentation=documentation))
    return rows


@functools.cache
def broker_keys() -> Mapping[str, ConfigKey]:
    """Return all of a broker's keys, those of Kafka's without effect too."""
    from oncelog.broker.config.definitions_known import keys_without_effect

    return {**keys_without_effect(), **BrokerConfig.KEYS}


def _row_without_key(name: str, sources: ConfigSources) -> DescribeConfigsResourceResult:
    """Return the row of a name that is no key, but that the broker was started with.

    It may set a key for one listener. Anything else may be a secret.
    """
    from oncelog.broker.config.definitions_known import listener_base

    base = listener_base(name)
    key = None if base is None else broker_keys().get(base)
    sensitive = key is None or key.sensitive
    own = _synonyms_in((name,), sources, sensitive=sensitive)
    return DescribeConfigsResourceResult(
        name=name,
        value=own[0].value,
        read_only=True,
        config_source=own[0].source,
        is_sensitive=sensitive,
        synonyms=own if base is None or key is None else own + _broker_synonyms(sources, base),
        config_type=UNKNOWN_TYPE if key is None else key.type,
        documentation=None,
    )


def cluster_rows(
    image: MetadataImage, config: DynamicBrokerConfig, names: list[str] | None, *, documentation: bool
) -> list[DescribeConfigsResourceResult]:
    """Return the keys (all, or those in ``names``) that are set dynamically for all brokers."""
    rows = []
    for name, text in sorted(image.configs.get((BROKER, ""), {}).items()):
        key = broker_keys().get(name)
        if key is None or (names and name not in names):
            continue
        synonyms = [
            DescribeConfigsSynonym(name, None if key.sensitive else text, DYNAMIC_DEFAULT_BROKER_CONFIG)
        ]
        rows.append(_row(key, text, synonyms, read_only=not is_dynamic(key), documentation=documentation))
    return rows


def group_rows(
    image: MetadataImage,
    config: DynamicBrokerConfig,
    group_id: str,
    names: list[str] | None,
    *,
    documentation: bool,
) -> list[DescribeConfigsResourceResult]:
    """Return the group's keys (all, or those in ``names``), by name, each with its value, source and synonyms."""
    overrides = image.configs.get((GROUP, group_id), {})
    sources, requested = _config_sources(image, config), frozenset(names or ())
    rows = []
    for name, key in sorted(GroupConfig.KEYS.items()):
        if (requested and name not in requested) or (key.internal and name not in overrides):
            continue
        if key.synonyms:
            synonyms = _broker_synonyms(sources, key.synonyms[0][0])
        else:
            synonyms = [DescribeConfigsSynonym(name, key.to_text(key.default), DEFAULT_CONFIG)]
        text = overrides.get(name, synonyms[0].value if synonyms else None)
        if name in overrides:
            synonyms.insert(0, DescribeConfigsSynonym(name, text, GROUP_CONFIG))
        rows.append(_row(key, text, synonyms, read_only=False, documentation=documentation))
    return rows


def client_metrics_rows(
    image: MetadataImage, name: str, names: list[str] | None, *, documentation: bool
) -> list[DescribeConfigsResourceResult]:
    """Return the keys (all, or those in ``names``) of a subscription to metrics of clients."""
    texts = image.configs.get((CLIENT_METRICS, name), {})
    rows = []
    for key_name, key in sorted(ClientMetricsConfig.KEYS.items()):
        if names and key_name not in names:
            continue
        text, synonyms = key.to_text(key.default), []
        if key_name in texts:
            text = key.to_text(key.parse(texts[key_name]))
            synonyms = [DescribeConfigsSynonym(key_name, text, CLIENT_METRICS_CONFIG)]
        rows.append(_row(key, text, synonyms, read_only=False, documentation=documentation))
    return rows


def is_dynamic(key: ConfigKey) -> bool:
    """Whether a broker key can change while the broker runs: in Kafka, and here with the same effect."""
    if key.update_mode is UpdateMode.READ_ONLY or key.name in READ_AT_START:
        return False
    return key.in_effect or key.name in SaslKeys.KEYS or key.name in TlsKeys.KEYS


def _row(
    key: ConfigKey,
    text: str | None,
    synonyms: list[DescribeConfigsSynonym],
    *,
    read_only: bool,
    documentation: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.sensitive else text,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        is_sensitive=key.sensitive,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.documentation if documentation else None,
    )


def _config_sources(image: MetadataImage, config: DynamicBrokerConfig) -> ConfigSources:
    """Return the texts of each source of broker keys, with the source, in order of precedence."""
    configs = image.configs
    return (
        (dynamic_texts(configs.get((BROKER, str(config.current.node_id)), {})), DYNAMIC_BROKER_CONFIG),
        (dynamic_texts(configs.get((BROKER, ""), {})), DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static.texts, STATIC_BROKER_CONFIG),
    )


def _broker_synonyms(sources: ConfigSources, name: str) -> list[DescribeConfigsSynonym]:
    """Return every source and synonym that gives the broker key ``name`` a value, in order of precedence.

    As in Kafka, synonyms count only after the first source that sets the key itself, and a null default sets nothing:
    with only ``log.retention.hours`` set, ``log.retention.ms`` seems to have its default.
    """
    names = _SYNONYMS_OF.get(name, (name,))
    keys = {other: broker_keys()[other] for other in names}
    defaults = {other: key.to_text(key.default) for other, key in keys.items()}
    found = _synonyms_in(names, (*sources, (defaults, DEFAULT_CONFIG)), sensitive=keys[name].sensitive)
    while found and found[0].name != name:
        del found[0]
    return found


def _synonyms_in(
    names: tuple[str, ...], sources: Iterable[ConfigSource], *, sensitive: bool
) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name, None if sensitive else texts[name], source)
        for texts, source in sources
        for name in names
        if texts.get(name) is not None
    ]
