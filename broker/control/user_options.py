"""Users as the command line and the test kit take them, and the listeners that they imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.security.sasl.users import Users

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.broker.config.listeners import ListenerConfig

SASL_PLAINTEXT = "SASL_PLAINTEXT"
MECHANISMS_OF_USERS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
"""What ``sasl.enabled.mechanisms`` is with users, if nobody sets it."""


def users_config(port: int) -> dict[str, str]:
    """Return the configuration that users imply where nobody sets it: everybody logs in."""
    return {
        "listeners": f"{SASL_PLAINTEXT}://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": MECHANISMS_OF_USERS,
    }


def checked_users(given: Mapping[str, str]) -> Users:
    """Return users. Raises InvalidArgumentError, without a password."""
    try:
        return Users(given)
    except ValueError as error:
        raise InvalidArgumentError(f"users=: {error}") from None


def parse_users(texts: Iterable[str], origin: str) -> Users:
    """Return the users of ``NAME:PASSWORD`` texts. Raises ConfigError, which quotes none: all may be a password."""
    passwords: dict[str, str] = {}
    for text in texts:
        name, colon, password = text.partition(":")
        if not colon:
            raise ConfigError(f"{origin}: expected NAME:PASSWORD")
        passwords[name] = password
    try:
        return Users(passwords)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def check_log_ins(origin: str, listeners: Iterable[ListenerConfig]) -> None:
    """Raises ConfigError if there are users, and no listener where they could log in."""
    if not any(listener.protocol.startswith("SASL") for listener in listeners):
        raise ConfigError(
            f"{origin} has no effect: no listener asks for a log-in; give one the protocol SASL_PLAINTEXT or SASL_SSL "
            "(listeners, listener.security.protocol.map)"
        )
