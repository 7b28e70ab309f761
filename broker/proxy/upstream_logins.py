"""`UpstreamLogins`: the user and the TLS settings of each upstream connection, by the client's principal.

The settings are Kafka's keys for clients: one client.properties for all, and a TOML file with a table for each user
whose settings differ. In that file, ``username`` and ``password`` stand for the JAAS text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.jaas import LOGIN_MODULES, OAUTHBEARER
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.processes import read_bytes

if TYPE_CHECKING:
    from oncelog.broker.client.security.login import Login

ANYBODY = "*"
"""The table for users without one of their own."""
_OWN_KEYS = ("username", "password")


class NoUpstreamLogin(Exception):  # noqa: N818 - what the client's connection ends with
    """No upstream user is configured for this principal."""


class UpstreamLogins:
    """``values``: the settings for everybody, and for the proxy itself. ``by_user``: what differs, by user's name.

    With ``pass_through`` clients log in to upstream themselves, through the proxy; ``values`` then say no more than
    whether that is done over TLS. ``origin`` and ``users_origin`` are where both stand, such as their files. Raises
    ConfigError, which quotes no password.
    """

    def __init__(
        self,
        values: Mapping[str, str],
        by_user: Mapping[str, Mapping[str, str]] | None = None,
        *,
        pass_through: bool = False,
        origin: str = "",
        users_origin: str = "--upstream-users",
    ) -> None:
        self.pass_through = pass_through
        if pass_through:
            if by_user:
                raise ConfigError("--upstream-users has no effect: log-ins pass through (--pass-logins)")
            values = {key: text for key, text in values.items() if not key.startswith("sasl.")}
            protocol = values.get("security.protocol", "").strip().upper()
            values["security.protocol"] = "SSL" if protocol.endswith("SSL") else "PLAINTEXT"
        self._by_user = {
            name: _security(f"{users_origin}, [{name}]", _merged, values, more)
            for name, more in (by_user or {}).items()
        }
        self._has_users = by_user is not None
        has_login = "sasl.jaas.config" in values
        needs_login = (values.get("security.protocol") or "").strip().upper().startswith("SASL")
        self.own: ClientSecurity | None = None
        """For the proxy's own connections, and for those of all clients without --upstream-users; None if only
        users have log-ins."""
        if has_login or not needs_login or not self._has_users:
            self.own = _security(origin, dict, values)
        self.without_login = self.own
        """For ApiVersions, which needs no log-in."""
        if needs_login:
            protocol = "SSL" if "SSL" in values["security.protocol"].upper() else "PLAINTEXT"
            self.without_login = ClientSecurity({**values, "security.protocol": protocol})

    @property
    def has_client_logins(self) -> bool:
        """Whether clients log in upstream as different users: their log-ins pass through, or users have entries."""
        return self.pass_through or self._has_users

    def of(self, principal: str) -> ClientSecurity:
        """Return the security of the upstream connections of ``principal``. Raises NoUpstreamLogin."""
        if not self._has_users:
            assert self.own is not None, "checked at the start"
            return self.own
        found = self._by_user.get(principal.partition(":")[2]) or self._by_user.get(ANYBODY)
        if found is None:
            raise NoUpstreamLogin(f"--upstream-users has no table for {principal}, and none for {ANYBODY!r}")
        return found


class Renewal:
    """The session of an upstream connection, which its client's requests keep alive (KIP-368)."""

    def __init__(self, security: ClientSecurity, renewal_s: float, authenticate_version: int) -> None:
        self._security = security
        self.authenticate_version = authenticate_version
        """Of SaslAuthenticate."""
        self._due_at = real_time.monotonic() + renewal_s

    @property
    def is_due(self) -> bool:
        """Whether the session has to be renewed before the next request."""
        return real_time.monotonic() >= self._due_at

    async def begin(self) -> Login:
        """Return the log-in that renews the session. Raises AuthenticationError if there is no token."""
        login = await self._security.new_login()
        assert login is not None, "there was one before"
        return login

    def renewed(self, login: Login) -> None:
        """Take note of how long the session lasts now."""
        renewal_s = login.renewal_s
        self._due_at = inf if renewal_s is None else real_time.monotonic() + renewal_s


def read_upstream_users(path: str) -> dict[str, dict[str, str]]:
    """Return the settings in a TOML file, by user. Raises ConfigError, which names the file and the line or user."""
    try:
        tables = tomllib.loads(read_bytes(path).decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: it is no UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    return checked_upstream_users(tables, path)


def checked_upstream_users(tables: Any, origin: str) -> dict[str, dict[str, str]]:
    """Return the settings by user, as texts. ``origin`` is where the tables stand. Raises ConfigError."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{origin}: expected a table for each user")
    found = {}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"{origin}: expected a table for each user, such as [{name}]")
        found[name] = dict(_flat(origin, name, table))
    if not found:
        raise ConfigError(f"{origin}: it has no user: expected a table for each, such as [app]")
    return found


def _flat(path: str, user: str, table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return the keys of a table with their values; ``a.b`` in TOML is a table inside a table."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += _flat(path, user, value, f"{prefix}{key}.")
        elif isinstance(value, str):
            found.append((f"{prefix}{key}", value))
        elif isinstance(value, bool | int | float):
            found.append((f"{prefix}{key}", str(value).lower()))
        else:
            raise ConfigError(f"{path}: [{user}] {prefix}{key}: expected a text")
    return found


def _security(origin: str, make: Callable[..., dict[str, str]], *values: Mapping[str, str]) -> ClientSecurity:
    """Return the security for the settings that ``make`` returns. Raises ConfigError, which begins with ``origin``."""
    try:
        return ClientSecurity(make(*values))
    except ConfigError as error:
        begin = f"{origin}: " if origin else ""
        raise ConfigError(*(f"{begin}{problem}" for problem in error.problems)) from None


def _merged(values: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a user. Raises ConfigError."""
    unknown = [key for key in more if "." not in key and key not in _OWN_KEYS]
    if unknown:
        raise ConfigError(
            f"unknown key {unknown[0]!r}: expected {', '.join(_OWN_KEYS)} or Kafka's keys for clients, such as "
            "sasl.mechanism"
        )
    merged = {**values, **{key: text for key, text in more.items() if key not in _OWN_KEYS}}
    given = [key for key in _OWN_KEYS if key in more]
    if given:
        mechanism = merged.get("sasl.mechanism", "").strip()
        if len(given) != len(_OWN_KEYS):
            raise ConfigError(f"it needs both of {' and '.join(_OWN_KEYS)}")
        if mechanism not in LOGIN_MODULES or mechanism == OAUTHBEARER:
            raise ConfigError("username and password need sasl.mechanism=PLAIN, or one of SCRAM")
        name, password = (more[key].replace("\\", "\\\\").replace('"', '\\"') for key in _OWN_KEYS)
        merged["sasl.jaas.config"] = (
            f'{LOGIN_MODULES[mechanism]} required username="{name}" password="{password}";'
        )
    return merged
