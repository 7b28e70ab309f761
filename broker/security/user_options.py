"""Users in the form of the command line, and the configuration that they imply."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import ListenerConfig
from oncelog.broker.credentials.jaas import OAUTHBEARER
from oncelog.broker.security.sasl.users import Users

SASL_PLAINTEXT = "SASL_PLAINTEXT"
MECHANISMS_OF_USERS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
"""The default of ``sasl.enabled.mechanisms`` where there are users."""


def security_config(port: int, *, has_users: bool, has_tls: bool, has_tokens: bool = False) -> dict[str, str]:
    """Return the configuration that users, TLS and tokens imply, unless it is set: one listener, with SASL for users
    and tokens.
    """
    config = {}
    has_logins = has_users or has_tokens
    if has_logins or has_tls:
        protocol = "SASL_SSL" if has_logins and has_tls else SASL_PLAINTEXT if has_logins else "SSL"
        config["listeners"] = f"{protocol}://127.0.0.1:{port}"
    if has_logins:
        mechanisms = (MECHANISMS_OF_USERS if has_users else "", OAUTHBEARER if has_tokens else "")
        config["sasl.enabled.mechanisms"] = ",".join(filter(None, mechanisms))
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
