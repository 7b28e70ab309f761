"""The configuration of client metrics (ConfigResource type CLIENT_METRICS): subscriptions to metrics of clients.

Keys, defaults and error messages are those of Kafka's ``ClientMetricsConfigs``; KIP-714.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from oncelog.broker.config.definitions import (
    INT,
    LIST,
    ConfigError,
    ConfigKey,
    KeyCollector,
    key,
    no_empty_items,
)
from oncelog.coordinator.regular_expressions import ExpressionError, RegularExpression, compile_work
from oncelog.wire.errors import ErrorCode, KafkaError

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
CLIENT_FACTS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a subscription may ask of a client."""


class ClientMetricsConfig(metaclass=KeyCollector):
    """The keys of a subscription."""

    __slots__ = ()
    KEYS: Mapping[str, ConfigKey]

    metrics: tuple[str, ...] = key(
        LIST, (), "The beginnings of the names of metrics to send; * is all.", check=no_empty_items
    )
    interval_ms: int = key(INT, INTERVAL_MS_DEFAULT, "Milliseconds between two pushes of a client.")
    match: tuple[str, ...] = key(
        LIST, (), "Which clients shall send them, as FACT=EXPRESSION; without any, all.", check=no_empty_items
    )


class Subscription(NamedTuple):
    """One subscription, parsed."""

    metrics: tuple[str, ...]
    interval_ms: int
    matches: dict[str, RegularExpression]
    """By fact: what has to match its whole text."""

    def concerns(self, facts: Mapping[str, str]) -> bool:
        """Whether it concerns a client with these facts. Where an expression is too large for one, it does not."""
        try:
            return all(name in facts and match.matches(facts[name]) for name, match in self.matches.items())
        except ExpressionError:
            return False


def parse_subscription(name: str, texts: Mapping[str, str]) -> Subscription:
    """Return the subscription with that name and configuration. Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    keys = ClientMetricsConfig.KEYS
    for text in texts:
        if text not in keys:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {text}")
    values: dict[str, Any] = {one: found.default for one, found in keys.items()}
    try:
        values.update((one, keys[one].parse(text)) for one, text in texts.items())
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    interval_ms = values["interval.ms"]
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )
    return Subscription(values["metrics"], interval_ms, _matches(values["match"]))


def _matches(texts: tuple[str, ...]) -> dict[str, RegularExpression]:
    """Return what has to match, by fact. Raises KafkaError (INVALID_CONFIG)."""
    try:
        compile_work("".join(texts))  # all together may take as long as one
    except ExpressionError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching patterns: {error}") from None
    return dict(map(_match, texts))


def _match(text: str) -> tuple[str, RegularExpression]:
    """Return the fact and the expression of ``FACT=EXPRESSION``. Raises KafkaError (INVALID_CONFIG)."""
    parts = text.rstrip("=").split("=")
    name = parts[0].strip()
    if len(parts) == 2 and name in CLIENT_FACTS:
        with suppress(ExpressionError):
            return name, RegularExpression(parts[1].strip())
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
