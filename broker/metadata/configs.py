"""What is configured, and where it comes from: the values, sources and synonyms that admin requests are answered with.

A broker key's value is the first of: dynamic for this broker, dynamic for all, static (given at the start), default. A
topic key's is the topic's own override, else that of the broker key that gives its default. Source: Kafka's
``ConfigHelper``, ``DynamicBrokerConfig``, ``KafkaConfigSchema``; KIP-133, KIP-226, KIP-569.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import TopicConfig, parse_topic_overrides
from broker.metadata.image import BROKER, TOPIC
from wire.errors import ErrorCode, KafkaError
from wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config.definitions import Key
    from broker.metadata.image import MetadataImage
    from broker.node import Node

# Where a value comes from (``DescribeConfigsResponse.ConfigSource``).
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5

VALUE_CHARS_MAX = 32767
"""Characters of a configuration value."""

_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
# The scheduler's interval is what log.flush.interval.ms defaults to, not another name of it.
_SYNONYMS_OF = {name: names for names in _SYNONYMS for name in names if "scheduler" not in name}


def effective_topic_config(image: MetadataImage, config: BrokerConfig, topic: str) -> TopicConfig:
    """What holds for a topic: its overrides, else what ``config``, the broker's configuration of now, gives."""
    return TopicConfig.effective(image.configs.get((TOPIC, topic), {}), config)


def check_topic_overrides(node: Node, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides where a topic may have them all; raises KafkaError (INVALID_CONFIG) where it may not."""
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        text = "Null value not supported for topic configs: " + ",".join(nulls)
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    values = {name: value for name, value in overrides.items() if value is not None}
    if any(len(value) > VALUE_CHARS_MAX for value in values.values()):
        raise value_too_long()
    parse_topic_overrides(values, node.config.topic_defaults())
    return values


def value_too_long() -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of "
        f"{VALUE_CHARS_MAX} bytes.",
    )


def effective_topic_rows(
    node: Node, overrides: Mapping[str, str], *, with_documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """Every topic key with its value, source and synonyms, for a topic with these overrides, by name."""
    effective = TopicConfig.effective(overrides, node.config)
    rows = []
    for name, key in sorted(TopicConfig.KEYS.items()):
        synonyms = _broker_synonyms(node, key.synonyms[0][0]) if key.synonyms else []
        text = effective.text(name)
        if name in overrides:
            synonyms.insert(0, DescribeConfigsSynonym(name, text, DYNAMIC_TOPIC_CONFIG))
        rows.append(_row(key, text, synonyms, read_only=False, with_documentation=with_documentation))
    return rows


def broker_rows(node: Node, *, with_documentation: bool = False) -> list[DescribeConfigsResourceResult]:
    """Every broker key with its value, source and synonyms."""
    rows = []
    for name, key in BrokerConfig.KEYS.items():
        synonyms = _broker_synonyms(node, name)
        read_only = not key.update_mode
        rows.append(
            _row(
                key,
                node.config.text(name),
                synonyms,
                read_only=read_only,
                with_documentation=with_documentation,
            )
        )
    return rows


def cluster_rows(node: Node, *, with_documentation: bool = False) -> list[DescribeConfigsResourceResult]:
    """The keys that are set dynamically for all brokers."""
    rows = []
    for name, text in node.metadata.image.configs.get((BROKER, ""), {}).items():
        key = BrokerConfig.KEYS[name]
        synonyms = [
            row for row in _broker_synonyms(node, name) if row.source == DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        rows.append(
            _row(key, text, synonyms, read_only=not key.update_mode, with_documentation=with_documentation)
        )
    return rows


def _row(
    key: Key,
    text: str | None,
    synonyms: list[DescribeConfigsSynonym],
    *,
    read_only: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.sensitive else text,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        is_sensitive=key.sensitive,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.documentation if with_documentation else None,
    )


def _broker_synonyms(node: Node, name: str) -> list[DescribeConfigsSynonym]:
    """Every place that gives the broker key ``name`` a value, the one in effect first.

    What a less preferred name gives counts only behind the key's own first appearance, as in Kafka.
    """
    configs = node.metadata.image.configs
    static = node.static_config
    places: tuple[tuple[Mapping[str, str | None], int], ...] = (
        (configs.get((BROKER, str(node.config.node_id)), {}), DYNAMIC_BROKER_CONFIG),
        (configs.get((BROKER, ""), {}), DYNAMIC_DEFAULT_BROKER_CONFIG),
        (static.texts, STATIC_BROKER_CONFIG),
    )
    names = _SYNONYMS_OF.get(name, (name,))
    sensitive = BrokerConfig.KEYS[name].sensitive
    found = [
        DescribeConfigsSynonym(other, None if sensitive else texts[other], source)
        for texts, source in places
        for other in names
        if other in texts
    ]
    for other in names:
        key = BrokerConfig.KEYS[other]
        found.append(
            DescribeConfigsSynonym(other, None if sensitive else key.to_text(key.default), DEFAULT_CONFIG)
        )
    first = next(index for index, row in enumerate(found) if row.name == name)
    return found[first:]
