"""`ConnectionLimits`: the limits of a listener's connections, and of those that it accepts in a second.

A listener has keys of its own (``listener.name.NAME.max.connections``, ``….max.connection.creation.rate``), else the
broker's. The limits of the whole broker hold beside them, but not for the listener that brokers use among themselves,
if there is another one. Source: Kafka's ``ConnectionQuotas``; KIP-402, KIP-612.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.dynamic import DynamicBrokerConfig

CONNECTIONS, RATE = "max.connections", "max.connection.creation.rate"


class _Limits(NamedTuple):
    connections: int
    rate: int


class ConnectionLimits:
    """The limits of a node with these listeners, as its configuration has them. A `Reconfigurable`."""

    def __init__(self, config: DynamicBrokerConfig, listeners: Sequence[str]) -> None:
        self._listeners = tuple(listeners)
        self._broker: _Limits
        self._of_listeners: dict[str, _Limits]
        texts = config.static.texts
        between_brokers = texts.get("inter.broker.listener.name") or texts.get(
            "security.inter.broker.protocol", "PLAINTEXT"
        )
        self._protected = between_brokers if len(self._listeners) > 1 else None
        self.reconfigure(config.current)
        config.reconfigurables.append(self)

    def validate(self, config: BrokerConfig) -> None:
        """See `Reconfigurable`."""
        for listener in self._listeners:
            for key, value in zip((CONNECTIONS, RATE), _limits(config, listener), strict=True):
                if value <= 0:
                    raise ConfigError(f"Invalid {key} {value}")

    def reconfigure(self, config: BrokerConfig) -> None:
        """See `Reconfigurable`."""
        self._broker = _Limits(config.max_connections, config.max_connection_creation_rate)
        self._of_listeners = {listener: _limits(config, listener) for listener in self._listeners}

    def have_room(self, listener: str, its_connections: int, all_connections: int) -> bool:
        """Whether one more connection may be accepted."""
        if its_connections >= self._of_listeners[listener].connections:
            return False
        return self.is_protected(listener) or all_connections < self._broker.connections

    def is_protected(self, listener: str) -> bool:
        """Whether the listener is exempt from the limits of the whole broker."""
        return listener == self._protected

    @property
    def rate(self) -> int:
        """Connections that the broker accepts in a second."""
        return self._broker.rate

    def rate_of(self, listener: str) -> int:
        """Return how many connections the listener accepts in a second."""
        return self._of_listeners[listener].rate


def _limits(config: BrokerConfig, listener: str) -> _Limits:
    """Return the listener's own limits, else the broker's."""
    prefix = f"listener.name.{listener.lower()}."

    def limit(key: str, brokers: int) -> int:
        text = config.texts.get(prefix + key)
        if text is None:
            return brokers
        value = BrokerConfig.KEYS[key].parse(text)
        assert isinstance(value, int)
        return value

    return _Limits(
        limit(CONNECTIONS, config.max_connections), limit(RATE, config.max_connection_creation_rate)
    )
