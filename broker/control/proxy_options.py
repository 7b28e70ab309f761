"""`ProxyOptions`: the checked options of a controlled proxy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.broker.client.security.keys import read_client_properties
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.config.options import UsageError
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.options import BrokerOptions, config_texts
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.loading import FilterError, checked_filter, is_filter, load_filter
from oncelog.broker.proxy.settings import (
    NOTHING_TO_KEEP,
    ProxySettings,
    served_listeners,
    upstream_addresses,
)
from oncelog.broker.proxy.upstream_logins import UpstreamLogins, checked_upstream_users, read_upstream_users
from oncelog.broker.proxy.used_keys import without_effect

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled


@dataclass(frozen=True)
class ProxyOptions:
    """See `oncelog.Proxy`, which documents each. Made by `checked_proxy_options`."""

    upstream: tuple[tuple[str, int], ...]
    own: BrokerOptions
    """The options for its clients: listeners, users, ACLs, limits."""
    upstream_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """It may have passwords, as may ``upstream_users``."""
    upstream_users: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    upstream_config_origin: str = "upstream_config"
    """Its file, if it has one."""
    upstream_users_origin: str = "upstream_users"
    pass_logins: bool = False
    filters: tuple[Interceptor, ...] = ()

    def settings(self) -> ProxySettings:
        """Return the settings. Raises ConfigError."""
        config = self.own.broker_config()
        listeners, _ = resolve_listeners(config, lambda: self.own.host_name)
        unused = without_effect(config, self.own.config, listeners, pass_through=self.pass_logins)
        if unused:
            raise ConfigError(*(f"config {why}" for why in unused.values()))
        port = self.own.port
        settings = ProxySettings(
            config,
            served_listeners(listeners, pass_through=self.pass_logins),
            list(self.upstream),
            {listeners[0].bind.listener: port + 1} if port else {},
            self.own.users,
            UpstreamLogins(
                self.upstream_config,
                self.upstream_users,
                pass_through=self.pass_logins,
                origin=self.upstream_config_origin,
                users_origin=self.upstream_users_origin,
            ),
            acls=self.own.acls,
            data_dir=self.own.data_dir,
        )
        if settings.has_idle_data_dir:
            raise ConfigError(f"data_dir= {NOTHING_TO_KEEP}")
        return settings

    def controlled(self) -> Controlled:
        """Return a proxy with these options."""
        from oncelog.broker.control.controlled_proxy import ControlledProxy
        from oncelog.broker.control.instruments import Extras

        return ControlledProxy(
            self.settings(),
            seed=self.own.seed,
            requests_kept=self.own.requests_kept,
            host_name=self.own.host_name,
            extras=Extras(filters=self.filters),
        )


def checked_proxy_options(
    upstream: str | Iterable[str],
    own: BrokerOptions,
    *,
    upstream_config: Mapping[str, object] | str | None,
    upstream_users: Mapping[str, Mapping[str, str]] | str | None,
    pass_logins: bool,
    filters: Iterable[Interceptor | str],
) -> ProxyOptions:
    """Return the options. ``upstream_config`` and ``upstream_users`` may be paths of files. Raises InvalidArgumentError
    for the first one that makes no sense.
    """
    has_tokens = any(key.startswith("sasl.oauthbearer.") for key in own.implied)
    for given, name in ((own.users, "users="), (has_tokens, "oauth=")):
        if pass_logins and given:
            raise InvalidArgumentError(
                f"{name} and pass_logins= exclude each other: log-ins are the cluster's"
            )
    if hasattr(type(upstream), "bootstrap_servers"):
        raise InvalidArgumentError(
            f"upstream={upstream!r}: expected its addresses, which are its bootstrap_servers"
        )
    if isinstance(filters, str):
        raise InvalidArgumentError(f"filters={filters!r}: expected a list of filters")
    if not isinstance(upstream, Iterable) or isinstance(upstream, bytes):
        raise InvalidArgumentError(f"upstream={upstream!r}: expected HOST:PORT, or a list of them")
    texts = upstream.split(",") if isinstance(upstream, str) else list(upstream)
    try:
        options = ProxyOptions(
            tuple(upstream_addresses([text.strip() for text in texts if text.strip()], "upstream")),
            own,
            read_client_properties(upstream_config)
            if isinstance(upstream_config, str)
            else config_texts(upstream_config or {}),
            _users(upstream_users),
            upstream_config if isinstance(upstream_config, str) else "upstream_config",
            upstream_users if isinstance(upstream_users, str) else "upstream_users",
            pass_logins,
            tuple(_filter(one) for one in filters),
        )
        options.settings()
    except (ConfigError, UsageError, FilterError) as error:
        raise InvalidArgumentError(str(error)) from None
    return options


def _users(given: Mapping[str, Mapping[str, str]] | str | None) -> dict[str, dict[str, str]] | None:
    """Return the settings by user, None if none are given. Raises ConfigError."""
    if given is None:
        return None
    return (
        read_upstream_users(given)
        if isinstance(given, str)
        else checked_upstream_users(given, "upstream_users")
    )


def _filter(given: Interceptor | str) -> Interceptor:
    if isinstance(given, str):
        return load_filter(given)
    if not isinstance(given, Interceptor):
        hint = f": did you mean {given.__name__}()?" if is_filter(given) else ""
        raise InvalidArgumentError(
            f"filters: {given!r}: expected an oncelog.Interceptor, or MODULE:NAME of one{hint}"
        )
    return checked_filter(given)
