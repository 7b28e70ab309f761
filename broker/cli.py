"""The command line: ``oncelog serve``. Reads the environment and files; an error is one line and an exit
code.

Exit codes: 0 after a clean stop (SIGTERM and Ctrl-C included), 1 where the broker cannot start or fails, 2
for a command line or a configuration that cannot be used."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import TYPE_CHECKING

from oncelog.broker.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import trio

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import Listener
    from oncelog.broker.config.sources import Setting
    from oncelog.broker.node import Entrance, Node

HEAP_BLOCK_BYTES = 8 * 1024 * 1024
"""A block of this size is taken and let go once at the start. From then on the C library keeps smaller ones (a
decompressed batch is about 1 MB) in its heap, where at first it maps and unmaps each: those page faults alone took
twice as long as all else that is done for an lz4 batch. The block is never touched, so it costs no memory."""
EXIT_STOPPED, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
VARIABLE_PREFIX = "ONCELOG_"
LOG_FORMATS = ("human", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
_BIND_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

# Our own options that set one of Kafka's keys.
KEY_OF_OPTION = {
    "listen": "listeners",
    "advertise": "advertised.listeners",
    "data_dir": "log.dirs",
    "ephemeral": "log.dirs",
}

_EPILOG = """\
Each option has an environment variable, named in brackets. Kafka's keys can be set there too, as its container
image does it: KAFKA_LOG_RETENTION_MS=60000 sets log.retention.ms (in capitals; . is _, _ is __, - is ___), and
CLUSTER_ID the cluster id. What is set twice: options win over -c, then the environment, then the file.

When clients can connect, one line goes to standard output: the address, node id, cluster id and data directory.
Logs go to standard error. SIGTERM and Ctrl-C stop cleanly, with exit code 0; a second one stops at once.
"""


class UsageError(Exception):
    """The command line, the environment or a file cannot be used."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"oncelog {version('oncelog')}")
        return EXIT_STOPPED
    if not options.serve:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return _serve(options, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oncelog", description="A Kafka-compatible broker in one process.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(serve=False)
    serve = parser.add_subparsers(metavar="COMMAND").add_parser(
        "serve",
        help="run a broker (see: oncelog serve --help)",
        description="Run a broker.",
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.set_defaults(serve=True)

    def add(option: str, text: str, group: argparse._ActionsContainer = serve, **more: object) -> None:
        variable = VARIABLE_PREFIX + option.upper()
        flag = "--" + option.replace("_", "-")
        group.add_argument(flag, help=f"{text} [{variable}]", **more)  # type: ignore[arg-type]

    add("listen", "listen there; port 0 takes a free one (default: 127.0.0.1:9092)", metavar="HOST:PORT")
    add("advertise", "tell clients to connect there (default: where it listens)", metavar="HOST:PORT")
    place = serve.add_mutually_exclusive_group()
    add("data_dir", "keep data there (default: in the user's data directory)", place, metavar="DIR")
    add("ephemeral", "keep data in a directory that is removed at the end", place, action="store_true")
    add("config", "read a server.properties", metavar="FILE")
    serve.add_argument(
        "-c",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set one of Kafka's keys; may be repeated [KAFKA_KEY]",
    )
    add("log_format", "how log lines look (default: human)", choices=LOG_FORMATS)
    add("log_level", "which log lines are written (default: info)", choices=LOG_LEVELS)
    return parser


def _serve(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from oncelog.broker.config.definitions import ConfigError

    scratch = os.path.join(environment.get("TMPDIR") or "/tmp", f"oncelog-{os.urandom(8).hex()}")
    try:
        _start_logs(options, environment)
        config, listeners = _configuration(options, environment, scratch)
    except (ConfigError, UsageError) as error:
        return _complain(error, EXIT_USAGE)
    if config.data_dir != scratch:
        return _run(config, listeners, durable=True)
    try:
        os.mkdir(scratch, 0o700)
    except OSError as error:
        return _complain(f"cannot make a directory for --ephemeral: {error}", EXIT_FAILED)
    try:
        return _run(config, listeners, durable=False)
    finally:
        import shutil

        shutil.rmtree(scratch, ignore_errors=True)


def _run(config: BrokerConfig, listeners: list[Listener], *, durable: bool) -> int:
    import trio

    from oncelog.broker.config.listeners import address_text
    from oncelog.broker.log.data_directory import DataDirectoryError

    bytes(HEAP_BLOCK_BYTES)
    try:
        trio.run(_serve_until_signal, config, listeners, durable)
    except KeyboardInterrupt:
        return EXIT_FAILED  # a second Ctrl-C: not a clean stop
    except BaseExceptionGroup as group:
        error = _single(group)
        if isinstance(error, DataDirectoryError):
            return _complain(error, EXIT_FAILED)
        if isinstance(error, OSError) and (error.errno in _BIND_ERRORS or type(error).__name__ == "gaierror"):
            addresses = ", ".join(address_text(*listener.bind[1:]) for listener in listeners)
            return _complain(f"cannot listen on {addresses}: {error.strerror}", EXIT_FAILED)
        raise
    return EXIT_STOPPED


async def _serve_until_signal(config: BrokerConfig, listeners: list[Listener], durable: bool) -> None:
    """Run a broker until SIGINT or SIGTERM, then stop it cleanly; a second signal ends the process at once."""
    import trio

    from oncelog.broker.serve import serve

    # What comes while the broker stops finds the default handlers again.
    stop = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await nursery.start(_cancel_on_signal, stop)
        with stop:
            await serve(config, listeners, _say_ready, durable=durable)
        nursery.cancel_scope.cancel()


async def _cancel_on_signal(scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
    import signal

    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        number = await anext(signals)
    get_logger(__name__).info("stopping", signal=signal.Signals(number).name)
    scope.cancel()


def _single(error: BaseException) -> BaseException:
    """What is inside of groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _say_ready(node: Node, entrances: list[Entrance]) -> None:
    from oncelog.broker.config.listeners import address_text

    listening, told = entrances[0].listener.address, (entrances[0].host, entrances[0].port)
    fields = {
        "address": address_text(*listening),
        **({"advertised": address_text(*told)} if told != listening else {}),
        "node.id": node.config.current.node_id,
        "cluster.id": node.cluster.cluster_id,
        "data.dir": os.path.abspath(node.config.current.data_dir),
    }
    get_logger(__name__).info("ready", **fields)
    try:
        print("oncelog ready", *(f"{name}={value}" for name, value in fields.items()), flush=True)
    except OSError:
        # Nobody reads it. The broker serves all the same, and Python must not fail over it at its end.
        sys.stdout = None


def _complain(what: object, exit_code: int) -> int:
    print(f"oncelog: {what}", file=sys.stderr)
    return exit_code


def _start_logs(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    from oncelog.broker import logs
    from oncelog.broker.seams.clock import SystemClock
    from oncelog.broker.seams.stderr import StderrSink

    def chosen(option: str, allowed: tuple[str, ...], default: str) -> str:
        variable = VARIABLE_PREFIX + option.upper()
        text = getattr(options, option) or environment.get(variable) or default
        if text not in allowed:
            raise UsageError(f"{variable}={text}: expected one of {', '.join(allowed)}")
        return str(text)

    style = chosen("log_format", LOG_FORMATS, "human")
    logs.configure(StderrSink(), SystemClock(), style=style, level=chosen("log_level", LOG_LEVELS, "info"))


def _configuration(
    options: argparse.Namespace, environment: Mapping[str, str], scratch: str
) -> tuple[BrokerConfig, list[Listener]]:
    """The configuration of all sources, and its listeners. `scratch`: where data goes with --ephemeral."""
    from oncelog.broker.config import sources
    from oncelog.broker.config.listeners import resolve_listeners

    flags = {option: _text(getattr(options, option)) for option in KEY_OF_OPTION}
    variables = {option: environment.get(VARIABLE_PREFIX + option.upper()) for option in KEY_OF_OPTION}
    path = options.config or environment.get(VARIABLE_PREFIX + "CONFIG")
    config = sources.build_config(
        [sources.Setting("log.dir", _default_data_dir(environment), "the default")],
        sources.from_file(_read(path), path) if path else (),
        sources.from_environment(environment),
        _own_settings(variables, scratch, lambda option: VARIABLE_PREFIX + option.upper()),
        sources.from_options(options.settings),
        _own_settings(flags, scratch, lambda option: "--" + option.replace("_", "-")),
    )
    listeners, warnings = resolve_listeners(config, _host_name)
    log = get_logger(__name__)
    for warning in sources.warnings_of(config) + warnings:
        log.warning(warning)
    return config, listeners


def _own_settings(
    given: Mapping[str, str | None], scratch: str, origin_of: Callable[[str], str]
) -> Iterator[Setting]:
    """Our own options in Kafka's keys."""
    from oncelog.broker.config.sources import Setting

    for option, text in given.items():
        if not text:
            continue
        origin = origin_of(option)
        if option == "ephemeral":
            if text.lower() not in BOOLEANS:
                raise UsageError(f"{origin}={text}: expected true or false")
            if BOOLEANS[text.lower()]:
                yield Setting(KEY_OF_OPTION[option], scratch, origin)
        elif option == "data_dir":
            yield Setting(KEY_OF_OPTION[option], os.path.abspath(text), origin)
        else:
            yield Setting(KEY_OF_OPTION[option], text if "://" in text else f"PLAINTEXT://{text}", origin)


def _text(flag: object) -> str | None:
    return "true" if flag is True else str(flag) if flag else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="latin-1", newline="") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read the configuration {path}: {error.strerror}") from None


def _default_data_dir(environment: Mapping[str, str]) -> str:
    """A directory for this user's data, by the XDG rules."""
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "oncelog")


def _host_name() -> str:
    import socket

    return socket.gethostname()


if __name__ == "__main__":
    sys.exit(main())
