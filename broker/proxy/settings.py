"""`ProxySettings`: the settings of ``oncelog proxy``, from its options, their variables and Kafka's keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.client.security.keys import read_client_properties
from oncelog.broker.config import sources
from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.config.options import (
    DEFAULT_PORT,
    PORT_MAX,
    Given,
    UsageError,
    flag_of,
    host_and_port,
    variable_of,
)
from oncelog.broker.proxy.node_ports import ports_after
from oncelog.broker.proxy.upstream_logins import UpstreamLogins, read_upstream_users
from oncelog.broker.proxy.used_keys import has_own_access, without_effect
from oncelog.broker.security.acl_text import acl_warnings, check_acls, parse_acls
from oncelog.broker.security.user_options import MECHANISMS_OF_USERS, check_logins, parse_users

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.security.sasl.users import Users


WITHOUT_SASL = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}
"""A listener's protocol -> what the proxy does of it where log-ins pass through."""

_OTHER_SEPARATORS = re.compile(r"[;|/\s]+")
"""Characters that no address contains, and that people write in place of the comma."""


class ProxySettings(NamedTuple):
    """``first_node_ports``: listener -> the port of the first upstream node; the next nodes have the next ports. A
    listener without an entry takes free ports; without any, they are the ports after each listener's. ``upstream``:
    addresses of some of the cluster's nodes.
    """

    config: BrokerConfig
    listeners: list[ListenerConfig]
    upstream: list[tuple[str, int]]
    first_node_ports: Mapping[str, int] | None
    users: Users
    """The users that may log in at the proxy."""
    logins: UpstreamLogins
    acls: Sequence[AclBinding] = ()
    """The proxy's own ACLs, which have an effect if there is an authorizer."""
    data_dir: str | None = None
    """Where the proxy keeps its own users, ACLs, quotas and tokens; in memory without it."""

    @property
    def has_idle_data_dir(self) -> bool:
        """Whether there is a data directory in which the proxy would keep nothing."""
        return self.data_dir is not None and not has_own_access(
            self.config, {row.protocol for row in self.listeners}, pass_through=self.logins.pass_through
        )


NOTHING_TO_KEEP = "has no effect: no log-ins end at this proxy, and it has no ACLs of its own"
"""The end of the error or warning about `ProxySettings.has_idle_data_dir`."""


def served_listeners(listeners: list[ListenerConfig], *, pass_through: bool) -> list[ListenerConfig]:
    """Return the listeners with the protocols that the proxy itself has, where log-ins may pass through."""
    if not pass_through:
        return listeners
    return [row._replace(protocol=WITHOUT_SASL[row.protocol]) for row in listeners]


def proxy_settings(
    options: argparse.Namespace, environment: Mapping[str, str], host_name: Callable[[], str]
) -> tuple[ProxySettings, list[str]]:
    """Return the settings, and warnings. Raises UsageError, ConfigError with all problems."""
    if options.data_dir == "":
        raise UsageError("--data-dir needs a value")
    given = Given(options, environment)
    upstream = upstream_addresses(_parts(given, "upstream"), "--upstream")
    users = parse_users(*given.texts("user"))
    protocol = "SASL_PLAINTEXT" if users else "PLAINTEXT"
    default = _endpoints([f"127.0.0.1:{DEFAULT_PORT}"], "--listen", DEFAULT_PORT, protocol)
    own: list[sources.Setting] = []
    for option, key, port in (
        ("listen", "listeners", DEFAULT_PORT),
        ("advertise", "advertised.listeners", 0),
    ):
        if texts := _parts(given, option):
            own.append(
                sources.Setting(key, _endpoints(texts, flag_of(option), port, protocol), flag_of(option))
            )
    problems: list[str] = []
    from_environment = sources.from_environment(environment).settings
    from_options = sources.from_options(options.settings, problems)
    acl_texts, acl_origin = given.texts("acl")
    acls = parse_acls(acl_texts, acl_origin)
    implied = {"listeners": default}
    if users:
        implied["sasl.enabled.mechanisms"] = MECHANISMS_OF_USERS
    if acls:
        implied["authorizer.class.name"] = STANDARD_AUTHORIZER
    config = sources.build_config(
        [sources.Setting(key, text, "the default") for key, text in implied.items()],
        from_environment,
        from_options,
        own,
        problems=problems,
    )
    logins = _logins(given)
    warnings: list[str] = []
    listeners: list[ListenerConfig] = []
    try:
        listeners, warnings = resolve_listeners(config, host_name)
    except ConfigError as error:
        problems += error.problems
    else:
        unused = without_effect(config, config.texts, listeners, pass_through=logins.pass_through)
        problems += _refused(unused, from_options, own)
        others = [one.name for one in from_environment if one.name in unused]
        if others:  # they may be there for brokers
            named = ", ".join(others)
            warnings.append(f"keys that have no effect on a proxy: {named} [from the environment]")
    if problems:
        raise ConfigError(*problems)
    if users:
        check_logins("--user", listeners)
    if acls:
        check_acls(acl_origin, config)
    if not logins.pass_through:
        warnings += acl_warnings(acls, listeners, acl_origin)
    elif users:
        raise ConfigError("--user has no effect: log-ins pass through (--pass-logins)")
    listeners = served_listeners(listeners, pass_through=logins.pass_through)
    first = _first_node_ports(_parts(given, "node_ports"), listeners)
    data_dir = given.text("data_dir")[0] or None
    settings = ProxySettings(config, listeners, upstream, first, users, logins, acls, data_dir)
    if settings.has_idle_data_dir:
        if options.data_dir is not None:
            raise ConfigError(f"--data-dir {NOTHING_TO_KEEP}: add --user or --acl, or leave it out")
        warnings.append(f"{variable_of('data_dir')} {NOTHING_TO_KEEP}")  # it may be there for a broker
        settings = settings._replace(data_dir=None)
    return settings, warnings


def _refused(
    unused: Mapping[str, str], given: Sequence[sources.Setting], own: Sequence[sources.Setting]
) -> list[str]:
    """Return an error for each given setting without an effect, also for one that an option in ``own`` overrides."""
    instead = {one.name: one.origin for one in own}
    problems = []
    for setting in given:
        why = unused.get(setting.name)
        if why is None and setting.name in instead:
            why = f"{setting.name} has no effect beside {instead[setting.name]}"
        if why is not None:
            problems.append(f"{why} [from {setting.origin}]")
    return problems


def _logins(given: Given) -> UpstreamLogins:
    """Return the users of the upstream connections. Raises ConfigError, UsageError."""
    config, users = given.text("upstream_config")[0], given.text("upstream_users")[0]
    return UpstreamLogins(
        read_client_properties(config) if config else {},
        read_upstream_users(users) if users else None,
        pass_through=given.is_true("pass_logins"),
        origin=config,
        users_origin=users,
    )


def _parts(given: Given, option: str) -> list[str]:
    """Return the values of an option that may be repeated, or of its variable, each of several separated by commas."""
    return [part.strip() for text in given.texts(option)[0] for part in text.split(",") if part.strip()]


def upstream_addresses(texts: Sequence[str], origin: str) -> list[tuple[str, int]]:
    """Return the addresses of some of the cluster's brokers. Raises UsageError."""
    if not texts:
        raise UsageError(
            f"{origin} is missing: HOST:PORT of one of the cluster's brokers, or several of them"
        )
    found = []
    for text in texts:
        if "://" in text:
            raise UsageError(f"{origin}={text}: expected HOST:PORT, without {text.partition('://')[0]}://")
        parts = [part for part in _OTHER_SEPARATORS.split(text) if part]
        if len(parts) > 1:
            raise UsageError(f"{origin}={text}: addresses are separated by commas: {','.join(parts)}")
        if parts != [text]:
            raise UsageError(f"{origin}={text}: expected HOST:PORT")
        host, port = host_and_port(text, origin, DEFAULT_PORT)
        if not host or not port:
            raise UsageError(f"{origin}={text}: expected HOST:PORT")
        found.append((host.removeprefix("[").removesuffix("]"), port))
    return found


def _endpoints(texts: Sequence[str], origin: str, default_port: int, default_name: str) -> str:
    """Return the value of Kafka's key. An address without a name has the default one. Raises UsageError."""
    endpoints = []
    for text in texts:
        name, slashes, address = text.rpartition("://")
        host, port = host_and_port(address, f"{origin}={text}" if slashes else origin, default_port)
        endpoints.append(f"{name or default_name}://{host}:{port}")
    return ",".join(endpoints)


def _first_node_ports(texts: Sequence[str], listeners: Sequence[ListenerConfig]) -> dict[str, int]:
    """Return the first node port of each listener: what ``--node-ports`` says, otherwise the one after the
    listener's.
    """
    binds = [listener.bind for listener in listeners]
    first = ports_after({bind.listener: bind.port for bind in binds})
    names = [bind.listener for bind in binds]
    for text in texts:
        name, equals, port = text.rpartition("=")
        if not port.isascii() or not port.isdecimal() or int(port) > PORT_MAX:
            raise UsageError(f"--node-ports={text}: expected the first PORT of the nodes, or LISTENER=PORT")
        if equals and name.upper() not in names:
            raise UsageError(
                f"--node-ports={text}: there is no listener {name}; there are {', '.join(names)}"
            )
        if not equals and len(names) > 1:
            raise UsageError(
                f"--node-ports={text}: there are several listeners: --node-ports {names[0]}={port}"
            )
        chosen = name.upper() if equals else names[0]
        first.pop(chosen, None)
        if int(port):
            first[chosen] = int(port)
    return first
