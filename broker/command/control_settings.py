"""`control_settings`: what the command line, and the environment, ask for beside a broker or a proxy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from oncelog.broker.config.options import UsageError, checked_token, closest, control_address, flag_of
from oncelog.broker.seams.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.options import Given
    from oncelog.broker.control.instruments import Extras
    from oncelog.broker.dispatch.interfaces import Interceptor
    from oncelog.broker.faults.rule import Rule
    from oncelog.broker.logging.logs import LogOutput
    from oncelog.broker.trace.trace import Selection

CONTROL_TOKEN = "ONCELOG_CONTROL_TOKEN"
CONTROL_PACKAGES = ("hypercorn", "starlette")
PATH_SEPARATOR = ":"
"""Between several files in a variable."""
WILDCARDS = "*?["
ORIGINS_OF_MEMORY = ("--memory", "ONCELOG_MEMORY")


@dataclass(frozen=True)
class ControlSettings:
    """What is asked for beside a broker or a proxy."""

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
    filters: tuple[Interceptor, ...] = ()
    """Between clients and the broker, or the cluster behind the proxy; the one nearest to the clients first."""
    traced: Selection | None = None
    """Which requests are told of; None for no trace."""
    with_records: bool = False
    """Whether the trace shows keys and values."""
    nodes: int = 1

    def extras(self, output: LogOutput, write_trace: Callable[[str], None], place: str) -> Extras:
        """Return the rules, the filters and the trace for a broker or a proxy. Its log lines go to ``output``, too.
        ``write_trace`` gets the lines of the trace; ``place``: see `Trace`.
        """
        from oncelog.broker.control.instruments import Extras

        trace = None
        if self.traced is not None:
            from oncelog.broker.trace.trace import Trace

            trace = Trace(write_trace, self.traced, with_records=self.with_records, place=place)
        return Extras(output.also_to, self.rules, trace, self.filters)


def is_in_memory(config: BrokerConfig) -> bool:
    """Whether the data is to be kept in memory."""
    return config.origins.get("log.dirs") in ORIGINS_OF_MEMORY


def control_settings(
    given: Given,
    config: BrokerConfig,
    listeners: Sequence[str],
    read: Callable[[str, str], str],
    refused: Callable[[], Mapping[str, str]] = dict,
) -> ControlSettings | None:
    """Return what is asked for, None if nothing is. ``listeners`` are their names; ``read`` returns the text of a file,
    whose kind it is told; ``refused`` gives the actions that rules may not have, see `TargetLimits`. Raises UsageError.
    """
    with_records = given.is_true("trace_records")
    nodes = _nodes(*given.text("nodes"))
    settings = ControlSettings(
        *_control(given, read),
        in_memory=is_in_memory(config),
        rules=_rules(given, read, listeners, refused, nodes),
        from_snapshot=given.text("from_snapshot")[0] or None,
        snapshot_bytes_max=_snapshot_bytes_max(given),
        version=_version(*given.text("as_version")),
        filters=_filters(given.texts("filter")[0]),
        traced=_traced(given, with_records=with_records),
        with_records=with_records,
        nodes=nodes,
    )
    return settings if settings != ControlSettings() else None


def _nodes(text: str, origin: str) -> int:
    """Return the number of ``--nodes``. Raises UsageError."""
    if not text:
        return 1
    from oncelog.broker.control.nodes.configs import NODES_MAX

    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise UsageError(f"{origin}={text}: expected a number of nodes, from 1 to {NODES_MAX}")
    return int(text)


def _control(given: Given, read: Callable[[str, str], str]) -> tuple[tuple[str, int] | None, str | None]:
    """Return the control API's address and token. Raises UsageError."""
    text, origin = given.text("control")
    path, token_origin = given.text("control_token_file")
    if not text:
        if path:
            raise UsageError(f"{token_origin} needs --control")
        return None, None
    missing = [name for name in CONTROL_PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(f"{origin} needs {' and '.join(missing)}: {install_command('control')}")
    token = given.environment.get(CONTROL_TOKEN)
    if path:
        token = checked_token(read(path, "the token"), f"{token_origin}={path}")
    elif token is not None:
        token = checked_token(token, CONTROL_TOKEN)
    return control_address(text, origin, token), token


def _rules(
    given: Given,
    read: Callable[[str, str], str],
    listeners: Sequence[str],
    refused: Callable[[], Mapping[str, str]],
    nodes: int,
) -> tuple[Rule, ...]:
    """Return the rules in the files of ``--faults``, see `TargetLimits`. Raises UsageError."""
    paths, _ = given.texts("faults", PATH_SEPARATOR)
    if not paths:
        return ()
    from oncelog.broker.faults.files import RuleFileError, load_rules
    from oncelog.broker.faults.rule import TargetLimits

    is_proxy = bool(refused())
    limits = TargetLimits(
        refused(), listeners, None if is_proxy else range(1, nodes + 1) if nodes > 1 else ()
    )
    found: list[Rule] = []
    for path in paths:
        try:
            found += load_rules(read(path, "the rules"), path, limits)
        except RuleFileError as error:
            raise UsageError(str(error)) from None
    return tuple(found)


def _snapshot_bytes_max(given: Given) -> int | None:
    """Return the number of ``--snapshot-bytes-max``, None without it. Raises UsageError."""
    text, origin = given.text("snapshot_bytes_max")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise UsageError(f"{origin}={text}: expected a number of bytes, such as 1073741824")
    if not given.text("from_snapshot")[0]:
        raise UsageError(f"{origin} needs --from-snapshot")
    return int(text)


def _version(text: str, origin: str) -> str | None:
    """Return the release of Kafka of ``--as-version``. Raises UsageError."""
    if not text:
        return None
    from oncelog.broker.emulation.release import emulated

    try:
        emulated(text)
    except ValueError as error:
        raise UsageError(f"{origin}: {error}") from None
    return text


def _traced(given: Given, *, with_records: bool) -> Selection | None:
    """Return the requests of ``--trace`` and its other options, None without them. Raises UsageError."""
    clients, apis, topics, groups = (
        tuple(given.texts(option)[0])
        for option in ("trace_client", "trace_api", "trace_topic", "trace_group")
    )
    if not (given.is_true("trace") or with_records or clients or apis or topics or groups):
        return None
    from oncelog.broker.trace.trace import Selection

    for api in apis:
        _check_api(api, given.texts("trace_api")[1])
    return Selection(clients, apis, topics, groups)


def _check_api(api: str, origin: str) -> None:
    from oncelog.broker.handlers.table import api_names

    if api in api_names() or any(mark in api for mark in WILDCARDS):
        return
    meant = closest(api, list(api_names()))
    hint = f"did you mean {meant}?" if meant else "expected Kafka's name of an API, such as Produce"
    raise UsageError(f"{origin}={api}: {hint}")


def _filters(texts: list[str]) -> tuple[Interceptor, ...]:
    if not texts:
        return ()
    from oncelog.broker.filters.loading import FilterError, load_filter

    try:
        return tuple(load_filter(text) for text in texts)
    except FilterError as error:
        raise UsageError(f"{flag_of('filter')}: {error}") from None
