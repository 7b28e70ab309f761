"""The command ``oncelog``, or ``oncelog serve``: it reads options, environment and files, and runs a broker.

Exit codes: 0 after a clean stop (by SIGTERM, SIGHUP or Ctrl-C), 1 if the broker cannot start or fails, 2 for an invalid
command line or configuration. Every error is one line on standard error."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from oncelog import __version__
from oncelog.broker.config.options import (
    CERTS_COMMAND,
    LOG_FORMATS,
    LOG_LEVELS,
    PROVE_COMMAND,
    PROXY_COMMAND,
    Given,
    UsageError,
    help_text,
    parse_arguments,
)
from oncelog.broker.logging.logs import LogOutput, get_logger, logging_to
from oncelog.broker.seams import garbage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    import trio

    from oncelog.broker.command.control_settings import ControlSettings
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig
    from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.node.node import Node
    from oncelog.broker.proxy.proxy import Proxy
    from oncelog.broker.trace.output import TraceOutput

HEAP_BLOCK_BYTES = 8 * 1024 * 1024
"""The start allocates a block of this size once and frees it. From then on the C library takes smaller blocks (a
decompressed batch is about 1 MB) from its heap; before, it maps and unmaps memory for each, and those page faults took
twice as long as everything else that an lz4 batch needs. Nothing writes to the block, so it costs no memory."""
EXIT_STOPPED, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_NOT_JUDGED = 3
"""Of ``oncelog prove``, where 1 says that a promise is broken."""


def main(arguments: list[str] | None = None, *, system: str = os.name) -> int:
    """Run the command and return its exit code. ``system`` is the operating system's family."""
    try:
        return _run_command(arguments, system)
    except KeyboardInterrupt:
        return EXIT_FAILED  # Ctrl-C before it served, or a second one: not a clean stop


def _run_command(arguments: list[str] | None, system: str) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [CERTS_COMMAND]:
        from oncelog.broker.command.certs import main as make_certificates

        try:
            return make_certificates(words[1:])
        except UsageError as error:
            return _print_error(error, EXIT_USAGE)
    if words[:1] == [PROVE_COMMAND]:
        try:
            from oncelog.broker.command.prove import main as prove

            return prove(words[1:])
        except UsageError as error:
            return _print_error(error, EXIT_USAGE)
        except KeyboardInterrupt:
            return EXIT_NOT_JUDGED
    if words[:1] == [PROXY_COMMAND]:
        return _proxy(words[1:], os.environ)
    try:
        options = parse_arguments(words, _proxy_options)
    except UsageError as error:
        return _print_error(error, EXIT_USAGE)
    if options.help:
        print(help_text(), end="")
        return EXIT_STOPPED
    if options.version:
        print(f"oncelog {__version__}")
        return EXIT_STOPPED
    if system != "posix":
        return _print_error(
            "there is no oncelog for this operating system; on Windows, run it in WSL", EXIT_FAILED
        )
    return _serve(Given(options, os.environ))


def _serve(given: Given) -> int:
    from oncelog.broker.command.command_config import acls_of, configuration, host_name, users_of
    from oncelog.broker.command.topics_option import topics_of
    from oncelog.broker.config.definitions import ConfigError

    parent = given.environment.get("TMPDIR") or "/tmp"
    scratch = os.path.join(parent, f"oncelog-{os.urandom(8).hex()}")
    try:
        output = _log_output(given)
        with logging_to(output):
            users, acls, topics = users_of(given), acls_of(given), topics_of(given)
            config, listeners = configuration(given.options, given.environment, scratch, users, acls)
        settings = _control_settings(given, config, listeners)
    except (ConfigError, UsageError) as error:
        return _print_error(error, EXIT_USAGE)
    with logging_to(output):
        if settings is None:
            from oncelog.broker.control.new_topics import create_missing
            from oncelog.broker.node.serve import serve

            prepare = partial(create_missing, topics=topics) if topics else None
            serving = partial(serve, config, listeners, _on_ready, users=users, acls=acls, prepare=prepare)
            return _run_in(scratch, parent, config, serving)
        from oncelog.broker.command.controlled_serve import serve_controlled

        serving = partial(
            serve_controlled,
            config,
            settings,
            _on_ready,
            _on_nodes_ready,
            output,
            host_name=host_name(),
            seed=_seed(),
            on_crash=_kill_this_process,
            write_trace=_trace_output().write,
            users=users,
            acls=acls,
            topics=topics,
        )
        return _run_in(scratch, parent, config, serving)


def _control_settings(
    given: Given,
    config: BrokerConfig,
    listeners: Iterable[ListenerConfig],
    refused: Callable[[], Mapping[str, str]] = dict,
) -> ControlSettings | None:
    """See `control_settings`."""
    from oncelog.broker.command.control_settings import control_settings

    if given.texts("filter")[0]:  # filters are imported from where the command is given, as with `python -m`
        sys.path.insert(0, os.getcwd())
    return control_settings(given, config, [row.bind.listener for row in listeners], _read_or_refuse, refused)


def _seed() -> int:
    return int.from_bytes(os.urandom(4), "big")


def _trace_output() -> TraceOutput:
    from oncelog.broker.seams.stderr import StderrSink
    from oncelog.broker.trace.output import TraceOutput

    return TraceOutput(StderrSink(1))


def _proxy_options() -> list[str]:
    from oncelog.broker.proxy.options import proxy_options

    return proxy_options()


def _proxy(words: list[str], environment: Mapping[str, str]) -> int:
    """Run ``oncelog proxy`` and return its exit code."""
    from oncelog.broker.command.command_config import host_name
    from oncelog.broker.config.definitions import ConfigError
    from oncelog.broker.proxy.options import parse_proxy_arguments, proxy_help_text
    from oncelog.broker.proxy.settings import proxy_settings

    try:
        options = parse_proxy_arguments(words)
        if options.help:
            print(proxy_help_text(), end="")
            return EXIT_STOPPED
        given = Given(options, environment)
        output = _log_output(given)
        with logging_to(output):
            settings, warnings = proxy_settings(options, environment, host_name)
            for warning in warnings:
                get_logger(__name__).warning(warning)
        control = _control_settings(given, settings.config, settings.listeners, _refused_by_proxy)
    except (ConfigError, UsageError) as error:
        return _print_error(error, EXIT_USAGE)
    with logging_to(output):
        if control is None:
            from oncelog.broker.proxy.serve import serve_proxy

            return run(partial(serve_proxy, settings, _on_proxy_ready))
        from oncelog.broker.command.controlled_serve import serve_controlled_proxy

        serving = partial(
            serve_controlled_proxy,
            settings,
            control,
            _on_proxy_ready,
            output,
            host_name=host_name(),
            seed=_seed(),
            write_trace=_trace_output().write,
        )
        return run(serving)


def _refused_by_proxy() -> Mapping[str, str]:
    from oncelog.broker.faults.rule import REFUSED_BY_PROXY

    return REFUSED_BY_PROXY


def _on_proxy_ready(
    proxy: Proxy, listeners: list[BoundListener], control: tuple[str, int] | None = None
) -> None:
    """Write the ready line: listeners as for a broker, the cluster's id, its nodes and their ports."""
    from oncelog.broker.seams.address import address_text

    garbage.settle()
    fields = _listener_fields(listeners)
    first = listeners[0]
    fields["upstream"] = ",".join(address_text(*address) for address in proxy.upstream.bootstrap)
    fields["cluster.id"] = proxy.upstream.cluster_id or "unknown"
    nodes = proxy.upstream.nodes
    if nodes:
        ports = ((node_id, address_text(*proxy.node_ports.address(first.name, node_id))) for node_id in nodes)
        fields["nodes"] = ",".join(f"{node_id}@{address}" for node_id, address in ports)
    if control is not None:
        fields["control"] = address_text(*control)
    if proxy.data_dir is not None:
        fields["data.dir"] = proxy.data_dir
    _write_ready(fields)


def _kill_this_process() -> None:
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def _run_in(scratch: str, parent: str, config: BrokerConfig, serving: Callable[..., Awaitable[None]]) -> int:
    """Run the broker and return the exit code. If its data directory is ``scratch``, create that in ``parent`` and
    remove it at the end. ``serving`` is told whether the data is ``durable``."""
    if config.data_dir != scratch:
        return run(partial(serving, durable=True))
    from oncelog.broker.seams.scratch import ScratchDirectory, sweep

    for left in sweep(parent):
        get_logger(__name__).info("removed what a killed process had left", directory=left)
    try:
        directory = ScratchDirectory(scratch)
    except OSError as error:
        return _print_error(
            f"cannot make a directory for --ephemeral in {parent}: {error.strerror}", EXIT_FAILED
        )
    try:
        return run(partial(serving, durable=False))
    finally:
        directory.remove()


def run(serving: Callable[[], Awaitable[None]]) -> int:
    """Serve until a signal, and return the exit code."""
    import trio

    from oncelog.broker.seams.error_groups import only_error
    from oncelog.broker.seams.os_files import raise_open_files_limit

    raise_open_files_limit()
    bytes(HEAP_BLOCK_BYTES)
    try:
        trio.run(serve_until_signal, serving)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):  # a second Ctrl-C, in a task
            raise KeyboardInterrupt from None
        error = only_error(group)
        exit_code = _exit_code(error)
        if exit_code is None:
            raise
        return _print_error(error, exit_code)
    return EXIT_STOPPED


def _exit_code(error: BaseException) -> int | None:
    """Return the exit code for an error that is the user's, None for any other."""
    from oncelog.broker.config.definitions import ConfigError, StartError
    from oncelog.broker.control.errors import InvalidArgumentError, OncelogError

    # A controlled broker that cannot start says why by BrokerFailedError.
    of_user = ConfigError, InvalidArgumentError
    if isinstance(error, of_user) or isinstance(error.__cause__, of_user):
        return EXIT_USAGE
    return EXIT_FAILED if isinstance(error, StartError | OncelogError) else None


async def serve_until_signal(serving: Callable[[], Awaitable[None]]) -> None:
    """Run a broker until SIGINT, SIGTERM or SIGHUP, and stop it cleanly. A second signal ends the process at once."""
    import trio

    # The receiver ends with the first signal: while the broker stops, signals have their default handlers again.
    stop = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await nursery.start(_cancel_on_signal, stop)
        with stop:
            await serving()
        nursery.cancel_scope.cancel()


async def _cancel_on_signal(scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
    import signal

    import trio

    # A terminal that closes sends SIGHUP. nohup ignores the signal, and then it stays ignored.
    hang_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hang_up) as signals:
        task_status.started()
        number = await anext(signals)
    get_logger(__name__).info("stopping", signal=signal.Signals(number).name)
    scope.cancel()


def _on_ready(node: Node, listeners: list[BoundListener], control: tuple[str, int] | None = None) -> None:
    garbage.settle()
    _print_ready(node, listeners, control)


def _print_ready(node: Node, listeners: list[BoundListener], control: tuple[str, int] | None) -> None:
    """Write the ready line to standard output and to the log: the first listener's address, all listeners if there are
    several, and the control API's address."""
    from oncelog.broker.command.control_settings import is_in_memory
    from oncelog.broker.seams.address import address_text

    fields = _listener_fields(listeners)
    fields["node.id"] = node.config.current.node_id
    fields["cluster.id"] = node.cluster.cluster_id
    if control is not None:
        fields["control"] = address_text(*control)
    fields["data.dir"] = "memory" if is_in_memory(node.config.current) else node.logs.data_dir
    _write_ready(fields)


def _on_nodes_ready(cluster: ControlledCluster, control: tuple[str, int] | None) -> None:
    """Write the ready line of several nodes: as for one, with the address of each."""
    from oncelog.broker.command.control_settings import is_in_memory
    from oncelog.broker.seams.address import address_text

    garbage.settle()
    fields = _listener_fields(cluster.of(1).runs.listeners)
    fields["nodes"] = ",".join(f"{node_id}@{address}" for node_id, address in cluster.addresses().items())
    fields["cluster.id"] = cluster.cluster_id
    if control is not None:
        fields["control"] = address_text(*control)
    fields["data.dir"] = "memory" if is_in_memory(cluster.config) else cluster.config.data_dir
    _write_ready(fields)


def _listener_fields(listeners: list[BoundListener]) -> dict[str, object]:
    """Return the first listener's address, and all listeners if there are several."""
    from oncelog.broker.config.listeners import ListenerEndpoint
    from oncelog.broker.seams.address import address_text

    bound = [ListenerEndpoint(row.name, *row.listener.address) for row in listeners]
    advertised = [ListenerEndpoint(row.name, row.host, row.port) for row in listeners]
    fields: dict[str, object] = {"address": address_text(*bound[0][1:])}
    if advertised[0] != bound[0]:
        fields["advertised"] = address_text(*advertised[0][1:])
    if len(bound) > 1:
        fields["listeners"] = ",".join(map(str, bound))
        if advertised != bound:
            fields["advertised.listeners"] = ",".join(map(str, advertised))
    return fields


def _write_ready(fields: Mapping[str, object]) -> None:
    get_logger(__name__).info("ready", **fields)
    try:
        print("oncelog ready", *(f"{name}={value}" for name, value in fields.items()), flush=True)
    except OSError:
        # Standard output is closed. The broker serves all the same, and Python must not flush it at exit.
        sys.stdout = None


def _print_error(error: object, exit_code: int) -> int:
    """Write each line of ``error`` to standard error. Returns ``exit_code``."""
    for line in str(error).splitlines():
        print(f"oncelog: {line}", file=sys.stderr)
    return exit_code


def _log_output(given: Given) -> LogOutput:
    from oncelog.broker.seams.clock import SystemClock
    from oncelog.broker.seams.stderr import StderrSink

    style = given.choice("log_format", LOG_FORMATS) or "human"
    level = given.choice("log_level", LOG_LEVELS) or "info"
    return LogOutput(StderrSink(), SystemClock(), style=style, level=level)


def _read_or_refuse(path: str, what: str) -> str:
    """Return the text of a file in UTF-8. Raises UsageError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {what} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {what} {path}: it is not UTF-8") from None


if __name__ == "__main__":
    sys.exit(main())
