"""`DynamicBrokerConfig`: the broker's current configuration, which admin requests change (KIP-226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.config.broker_config import BrokerConfig


class DynamicBrokerConfig:
    """Holds the configuration. A change replaces ``current``, so keep this object and read ``current`` on every use."""

    __slots__ = ("current", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        """The configuration at the start."""
        self.current = static
        """`static` with the dynamic changes."""

    def change(self, texts: Mapping[str, str]) -> None:
        """Replace all dynamic changes by ``texts``, values by Kafka's key. Raises ConfigError for an invalid value."""
        self.current = self.static.with_changes(texts) if texts else self.static
