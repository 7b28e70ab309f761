"""`DynamicBrokerConfig`: the broker's configuration, which admin requests change while it runs (KIP-226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.config.broker_config import BrokerConfig


class DynamicBrokerConfig:
    """Holds the configuration. Keep this object, and read ``current`` anew each time: changes replace it."""

    __slots__ = ("current", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        """What was given at the start."""
        self.current = static
        """`static` with the dynamic changes."""

    def change(self, texts: Mapping[str, str]) -> None:
        """Make ``texts``, Kafka's keys with their values, all the dynamic changes there are.

        Raises ConfigError where a value cannot be used.
        """
        self.current = self.static.with_changes(texts) if texts else self.static
