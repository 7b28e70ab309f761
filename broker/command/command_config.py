"""A broker's configuration and users, from the command line, the environment and server.properties."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncelog.broker.config.options import (
    BOOLEANS,
    DEFAULT_PORT,
    VARIABLE_PREFIX,
    Given,
    UsageError,
    closest,
    flag_of,
    listener_text,
    suggestion,
    variable_of,
)
from oncelog.broker.logging.logs import get_logger

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig
    from oncelog.broker.config.sources import Setting
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.security.sasl.users import Users

# Attributes of the argparse.Namespace that are no options, or that no environment variable sets.
WITHOUT_VARIABLE = {"help", "settings", "version", "words"}
# Kubernetes sets variables for a service named oncelog: ONCELOG_SERVICE_HOST, ONCELOG_PORT_9092_TCP_ADDR and so on.
KUBERNETES_PREFIXES = (VARIABLE_PREFIX + "SERVICE_", VARIABLE_PREFIX + "PORT_")

SECURE_PROTOCOLS = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}

# The key of Kafka's that each option sets.
KEY_OF_OPTION = {
    "port": "listeners",
    "listen": "listeners",
    "advertise": "advertised.listeners",
    "data_dir": "log.dirs",
    "ephemeral": "log.dirs",
    "memory": "log.dirs",
}


def configuration(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    scratch: str,
    users: Users | None = None,
    acls: Sequence[AclBinding] = (),
) -> tuple[BrokerConfig, list[ListenerConfig]]:
    """Return the configuration from all sources, and its listeners. ``scratch`` is the data directory for --ephemeral.
    With ``users``, listeners ask for a log-in unless a source says otherwise. With ``acls``, there is an authorizer.

    Raises ConfigError with all problems."""
    from oncelog.broker.config import sources
    from oncelog.broker.config.definitions import ConfigError
    from oncelog.broker.config.listeners import resolve_listeners

    implied: list[sources.Setting] = []
    protocol = "PLAINTEXT"
    if users:
        from oncelog.broker.security.user_options import SASL_PLAINTEXT, check_logins, security_config

        protocol = SASL_PLAINTEXT
        implied = [
            sources.Setting(key, text, "the default with --user")
            for key, text in security_config(DEFAULT_PORT, has_users=True, has_tls=False).items()
        ]
    if acls:
        from oncelog.broker.config.checks import STANDARD_AUTHORIZER

        implied.append(
            sources.Setting("authorizer.class.name", STANDARD_AUTHORIZER, "the default with --acl")
        )
    flags = {option: _text(getattr(options, option)) for option in KEY_OF_OPTION}
    variables = {option: environment.get(variable_of(option)) for option in KEY_OF_OPTION}
    path = options.config or environment.get(variable_of("config"))
    from_environment = sources.from_environment(environment)
    problems = _unknown_variables(options, environment)
    given = [
        *(sources.from_file(_read(path, problems), path, problems) if path else ()),
        *from_environment.settings,
        *_own_settings(variables, scratch, variable_of, problems, protocol),
        *sources.from_options(options.settings, problems),
        *_own_settings(flags, scratch, flag_of, problems, protocol),
    ]
    bare = {flag_of(one): flags[one] for one in ("port", "listen")}
    bare |= {variable_of(one): variables[one] for one in ("port", "listen")}
    _check_listeners(given, bare, protocol, problems)
    problems += [
        f"oncelog.nodes: --nodes says how many nodes there are [from {one.origin}]"
        for one in given
        if one.name == "oncelog.nodes"
    ]
    nodes, origin = Given(options, environment).text("nodes")
    if nodes.isdecimal() and int(nodes) > 1:  # else `control_settings` refuses it
        given.append(sources.Setting("oncelog.nodes", nodes, origin))
    config = sources.build_config(
        [sources.Setting("log.dir", _default_data_dir(environment), "the default"), *implied],
        given,
        problems=problems,
    )
    try:
        listeners, warnings = resolve_listeners(config, host_name)
        if users:
            check_logins("--user", listeners)
        if acls:
            from oncelog.broker.security.acl_text import acl_warnings, check_acls

            origin = Given(options, environment).texts("acl")[1]
            check_acls(origin, config)
            warnings += acl_warnings(acls, listeners, origin)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    log = get_logger(__name__)
    if from_environment.without_key:
        named = ", ".join(from_environment.without_key)
        log.warning(f"environment variables that set no key of Kafka's have no effect: {named}")
    for warning in sources.warnings_of(config) + warnings:
        log.warning(warning)
    return config, listeners


def users_of(given: Given) -> Users:
    """Return the users of ``--user``, else of its variable. Raises ConfigError."""
    from oncelog.broker.security.user_options import parse_users

    return parse_users(*given.texts("user"))


def acls_of(given: Given) -> list[AclBinding]:
    """Return the ACLs of ``--acl``, else of its variable. Raises ConfigError."""
    texts, origin = given.texts("acl")
    if not texts:
        return []
    from oncelog.broker.security.acl_text import parse_acls

    return parse_acls(texts, origin)


def _unknown_variables(options: argparse.Namespace, environment: Mapping[str, str]) -> list[str]:
    """Return an error for each ``ONCELOG_…`` variable that is no option's."""
    options_there = {*vars(options), "control_token"} - WITHOUT_VARIABLE
    known = sorted(variable_of(option).removeprefix(VARIABLE_PREFIX) for option in options_there)
    problems = []
    for variable in sorted(environment):
        name = variable.removeprefix(VARIABLE_PREFIX)
        if name not in (variable, *known) and not variable.startswith(KUBERNETES_PREFIXES):
            meant = closest(name, known)
            problems.append(
                f"unknown environment variable {variable}; {suggestion(meant and VARIABLE_PREFIX + meant)}"
            )
    return problems


def _own_settings(
    given: Mapping[str, str | None],
    scratch: str,
    origin_of: Callable[[str], str],
    problems: list[str],
    protocol: str,
) -> Iterator[Setting]:
    """Yield the settings of oncelog's own options. Errors are added to ``problems``."""
    from oncelog.broker.config.sources import Setting

    for option, text in given.items():
        origin = origin_of(option)
        if not text or (
            option == "port" and text.startswith("tcp://") and origin.startswith(VARIABLE_PREFIX)
        ):
            continue  # Kubernetes sets ONCELOG_PORT=tcp://… for a service named oncelog
        try:
            value = _value_of_option(option, text, origin, scratch, protocol)
        except UsageError as error:
            problems.append(str(error))
            continue
        if value is not None:
            yield Setting(KEY_OF_OPTION[option], value, origin)


def _value_of_option(option: str, text: str, origin: str, scratch: str, protocol: str) -> str | None:
    """Return the text of the key that an option sets, or None for ``--ephemeral`` and ``--memory`` off. Raises
    UsageError."""
    if option in ("ephemeral", "memory"):
        from oncelog.broker.control.options import MEMORY_DATA_DIR

        if text.lower() not in BOOLEANS:
            raise UsageError(f"{origin}={text}: expected true or false")
        directory = scratch if option == "ephemeral" else MEMORY_DATA_DIR
        return directory if BOOLEANS[text.lower()] else None
    return os.path.abspath(text) if option == "data_dir" else listener_text(option, text, origin, protocol)


def _check_listeners(
    given: list[Setting], bare: Mapping[str, str | None], protocol: str, problems: list[str]
) -> None:
    """Add an error to ``problems`` if a port or an address alone takes the place of listeners with TLS or log-ins.

    bare: by origin, what the options and variables for an address are set to. protocol: what it would speak.
    """
    found = [setting for setting in given if setting.name == "listeners"]
    if not found or "://" in (bare.get(found[-1].origin) or "://"):
        return
    named = {setting.name: setting.text for setting in given}.get("listener.security.protocol.map", "")
    protocols = dict(item.strip().upper().split(":", 1) for item in named.split(",") if ":" in item)
    for setting in found[:-1]:
        names = [one.strip().partition("://")[0].upper() for one in setting.text.split(",")]
        if any(protocols.get(name, name) in SECURE_PROTOCOLS - {protocol} for name in names):
            problems.append(
                f"{found[-1].origin} would open {found[-1].text} in place of {setting.text} [from {setting.origin}]: "
                "if you want that, name the protocol: --listen PROTOCOL://HOST:PORT"
            )
            return


def _text(flag: object) -> str | None:
    return "true" if flag is True else str(flag) if flag else None


def _read(path: str, problems: list[str]) -> str:
    """Return the text of a file. If it cannot be read, return an empty text and add the error to ``problems``."""
    try:
        with open(path, encoding="latin-1", newline="") as file:
            return file.read()
    except OSError as error:
        problems.append(f"cannot read the configuration {path}: {error.strerror}")
        return ""


def _default_data_dir(environment: Mapping[str, str]) -> str:
    """Return the user's data directory for oncelog (XDG Base Directory Specification)."""
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "oncelog")


def host_name() -> str:
    """Return this machine's name."""
    import socket

    return socket.gethostname()
