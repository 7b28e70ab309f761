"""Users in the form of the command line, and the configuration that they imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.security.sasl.users import Users

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.config.listeners import ListenerConfig

SASL_PLAINTEXT = "SASL_PLAINTEXT"
MECHANISMS_OF_USERS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
"""The default of ``sasl.enabled.mechanisms`` where there are users."""


def security_config(port: int, *, has_users: bool, has_tls: bool) -> dict[str, str]:
    """Return the configuration that users and TLS imply, unless it is set: one listener, with SASL for users."""
    config = {}
    if has_users or has_tls:
        protocol = "SASL_SSL" if has_users and has_tls else SASL_PLAINTEXT if has_users else "SSL"
        config["listeners"] = f"{protocol}://127.0.0.1:{port}"
    if has_users:
        config["sasl.enabled.mechanisms"] = MECHANISMS_OF_USERS
    return config


def parse_users(texts: Iterable[str], origin: str) -> Users:
    """Return the users of ``NAME:PASSWORD`` texts. Raises ConfigError, which quotes no text: it may be a password."""
    passwords: dict[str, str] = {}
    for text in texts:
        name, colon, password = text.partition(":")
        if not colon:
            raise ConfigError(f"{origin}: expected NAME:PASSWORD")
        if name in passwords:
            raise ConfigError(f"{origin}: the user {name} is there twice")
        passwords[name] = password
    try:
        return Users(passwords)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def check_logins(origin: str, listeners: Iterable[ListenerConfig]) -> None:
    """Raise ConfigError if no listener has SASL, so that users could not log in."""
    if not any(listener.protocol.startswith("SASL") for listener in listeners):
        raise ConfigError(
            f"{origin} has no effect: no listener asks for a log-in; give one the protocol SASL_PLAINTEXT or SASL_SSL "
            "(listeners, listener.security.protocol.map)"
        )
