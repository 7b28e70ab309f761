"""`ListenerSettings`: the security keys of one listener: its own (``listener.name.NAME.KEY``), else the broker's."""

from __future__ import annotations

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.definitions_security import PER_LISTENER_KEYS

SSL_KEYS = (
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.principal.mapping.rules",
    *PER_LISTENER_KEYS,
)
"""The keys that make a listener's TLS settings."""


class ListenerSettings:
    """The keys of the listener ``name`` in ``config``."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        self.name = name
        self._config = config
        prefix = f"listener.name.{name.lower()}."
        self.own = {
            key[len(prefix) :]: text for key, text in config.texts.items() if key.lower().startswith(prefix)
        }
        """The listener's own, without the prefix."""

    def text(self, key: str) -> str | None:
        """Return the value of a key as Kafka writes it, None for a null."""
        return self.own[key] if key in self.own else self._config.text(key)

    def is_true(self, key: str) -> bool:
        """Return the value of a boolean key."""
        return (self.text(key) or "").strip().lower() == "true"

    def items(self, key: str) -> list[str]:
        """Return the items of a list."""
        return [item.strip() for item in (self.text(key) or "").split(",") if item.strip()]

    def mechanism_text(self, mechanism: str, key: str) -> str | None:
        """Return the value of a key for one SASL mechanism (``MECHANISM.KEY``), None if it is not set."""
        return self.own.get(
            f"{mechanism.lower()}.{key}", self._config.texts.get(f"{mechanism.lower()}.{key}")
        )

    def of_mechanism(self, mechanism: str, key: str) -> str | None:
        """Return the value of a key for one mechanism, else for the listener, else for the broker; None for a null."""
        text = self.mechanism_text(mechanism, key)
        return self.text(key) if text is None else text

    def mechanism_int(self, mechanism: str, key: str) -> int:
        """Return a whole number for one mechanism, else for the listener. Raises ConfigError for other text."""
        text = self.of_mechanism(mechanism, key)
        try:
            return int(text or 0)
        except ValueError:
            raise ConfigError(f"listener {self.name}: {key}={text}: expected a whole number") from None

    def tls_values(self) -> dict[str, str | None]:
        """Return the keys of TLS."""
        return {key: self.text(key) for key in SSL_KEYS}
