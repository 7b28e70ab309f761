"""`control_settings`: what the command line, and the environment, ask for beside a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING

from oncelog.broker.command.interceptor_settings import InterceptorSettings, interceptor_settings
from oncelog.broker.config.listeners import listener_names
from oncelog.broker.config.options import UsageError, checked_token, control_address, origin_of, variable_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.faults.rule import Rule

CONTROL_TOKEN = "ONCELOG_CONTROL_TOKEN"
CONTROL_PACKAGES = ("hypercorn", "starlette")
PATH_SEPARATOR = ":"
"""Between several files in a variable."""
ORIGINS_OF_MEMORY = ("--memory", "ONCELOG_MEMORY")


@dataclass(frozen=True)
class ControlSettings:
    """What is asked for beside a broker."""

    address: tuple[str, int] | None = None
    """The address at which the control API listens; None without one."""
    token: str | None = None
    in_memory: bool = False
    rules: tuple[Rule, ...] = ()
    from_snapshot: str | None = None
    """The path of a snapshot's file."""
    snapshot_bytes_max: int | None = None
    """How many bytes it may unpack to, if that is said."""
    version: str | None = None
    """The release of Kafka that the broker is like."""
    interceptors: InterceptorSettings = field(default_factory=InterceptorSettings)


def is_in_memory(config: BrokerConfig) -> bool:
    """Whether the data is to be kept in memory."""
    return config.origins.get("log.dirs") in ORIGINS_OF_MEMORY


def control_settings(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    config: BrokerConfig,
    read: Callable[[str, str], str],
) -> ControlSettings | None:
    """Return what is asked for, None if nothing is. ``read`` returns the text of a file, whose kind it is told.

    Raises UsageError.
    """

    def chosen(option: str) -> tuple[str | None, str]:
        given = getattr(options, option)
        return given or environment.get(variable_of(option)), origin_of(option, given)

    settings = ControlSettings(
        *_control(chosen, environment, read),
        in_memory=is_in_memory(config),
        rules=_rules(options, environment, read, listener_names(config)),
        from_snapshot=chosen("from_snapshot")[0],
        snapshot_bytes_max=_snapshot_bytes_max(chosen),
        version=_version(*chosen("as_version")),
        interceptors=interceptor_settings(options, environment),
    )
    return settings if settings != ControlSettings() else None


def proxy_control_settings(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    listeners: Sequence[str],
    read: Callable[[str, str], str],
) -> ControlSettings | None:
    """As `control_settings`, for a proxy with listeners of these names. Raises UsageError, also for rules that a proxy
    cannot keep.
    """
    from oncelog.broker.faults.rule import REFUSED_BY_PROXY

    def chosen(option: str) -> tuple[str | None, str]:
        given = getattr(options, option)
        return given or environment.get(variable_of(option)), origin_of(option, given)

    settings = ControlSettings(
        *_control(chosen, environment, read),
        rules=_rules(options, environment, read, listeners, REFUSED_BY_PROXY),
        interceptors=interceptor_settings(options, environment),
    )
    return settings if settings != ControlSettings() else None


def _control(
    chosen: Callable[[str], tuple[str | None, str]],
    environment: Mapping[str, str],
    read: Callable[[str, str], str],
) -> tuple[tuple[str, int] | None, str | None]:
    """Return the control API's address and token. Raises UsageError."""
    text, origin = chosen("control")
    path, token_origin = chosen("control_token_file")
    if not text:
        if path:
            raise UsageError(f"{token_origin} needs --control")
        return None, None
    missing = [name for name in CONTROL_PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(f"{origin} needs {' and '.join(missing)}: pip install 'oncelog[control]'")
    token = environment.get(CONTROL_TOKEN)
    if path:
        token = checked_token(read(path, "the token"), f"{token_origin}={path}")
    elif token is not None:
        token = checked_token(token, CONTROL_TOKEN)
    return control_address(text, origin, token), token


def _rules(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    read: Callable[[str, str], str],
    listeners: Sequence[str],
    refused: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Rule, ...]:
    """Return the rules in the files of ``--faults``, for a `RuleTarget`. Raises UsageError."""
    in_variable = environment.get(variable_of("faults"), "")
    paths = options.faults or [path for path in in_variable.split(PATH_SEPARATOR) if path]
    if not paths:
        return ()
    from oncelog.broker.faults.files import RuleFileError, load_rules
    from oncelog.broker.faults.rule import RuleTarget

    target = RuleTarget(refused, listeners)
    found: list[Rule] = []
    for path in paths:
        try:
            found += load_rules(read(path, "the rules"), path, target)
        except RuleFileError as error:
            raise UsageError(str(error)) from None
    return tuple(found)


def _snapshot_bytes_max(chosen: Callable[[str], tuple[str | None, str]]) -> int | None:
    """Return the number of ``--snapshot-bytes-max``, None without it. Raises UsageError."""
    text, origin = chosen("snapshot_bytes_max")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise UsageError(f"{origin}={text}: expected a number of bytes, such as 1073741824")
    if not chosen("from_snapshot")[0]:
        raise UsageError(f"{origin} needs --from-snapshot")
    return int(text)


def _version(text: str | None, origin: str) -> str | None:
    """Return the release of Kafka of ``--as-version``. Raises UsageError."""
    if not text:
        return None
    from oncelog.broker.emulation.release import emulated

    try:
        emulated(text)
    except ValueError as error:
        raise UsageError(f"{origin}: {error}") from None
    return text
