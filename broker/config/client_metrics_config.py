"""The configuration of client metrics (ConfigResource type CLIENT_METRICS): subscriptions to metrics of clients.

Keys, defaults and error messages are those of Kafka's ``ClientMetricsConfigs``; KIP-714.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.config.definitions import INT, LIST, ConfigError, KeyCollector, key, no_empty_items
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.config.definitions import ConfigKey

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
    matches: dict[str, Callable[[str], object]]
    """By fact: what has to match its whole text."""

    def concerns(self, facts: Mapping[str, str]) -> bool:
        """Whether it concerns a client with these facts."""
        return all(name in facts and match(facts[name]) for name, match in self.matches.items())


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
    return Subscription(values["metrics"], interval_ms, dict(_match(text) for text in values["match"]))


def _match(text: str) -> tuple[str, Callable[[str], object]]:
    """Return the fact and the match function of ``FACT=EXPRESSION``. Raises KafkaError (INVALID_CONFIG)."""
    parts = text.rstrip("=").split("=")
    name = parts[0].strip()
    if len(parts) == 2 and name in CLIENT_FACTS:
        import re2  # type: ignore[import-untyped]

        options = re2.Options()
        options.log_errors = False
        try:
            match: Callable[[str], object] = re2.compile(parts[1].strip(), options).fullmatch
            return name, match
        except (re2.error, UnicodeError):
            pass
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
