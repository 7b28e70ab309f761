"""`DynamicBrokerConfig`: the broker's current configuration, which admin requests change (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from oncelog.broker.config.broker_config import BrokerConfig


class Reconfigurable(Protocol):
    """A part of the broker that takes on a changed configuration (Kafka: ``BrokerReconfigurable``)."""

    def validate(self, config: BrokerConfig) -> None:
        """Raise ConfigError if it cannot work with ``config``. Nothing changes."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Work with ``config`` from now on. Raises ConfigError, and goes on as before then."""


class DynamicBrokerConfig:
    """Holds the configuration. A change replaces ``current``, so keep this object and read ``current`` on every use."""

    __slots__ = ("current", "reconfigurables", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        """The configuration at the start."""
        self.current = static
        """`static` with the dynamic changes."""
        self.reconfigurables: list[Reconfigurable] = []

    def change(self, texts: Mapping[str, str]) -> None:
        """Replace all dynamic changes by ``texts``, values by Kafka's key. Raises ConfigError for an invalid value."""
        self.current = self.static.with_changes(texts) if texts else self.static
        for reconfigurable in self.reconfigurables:
            reconfigurable.reconfigure(self.current)

    def validate(self, config: BrokerConfig) -> None:
        """Raise ConfigError if something cannot work with ``config``."""
        for reconfigurable in self.reconfigurables:
            reconfigurable.validate(config)
