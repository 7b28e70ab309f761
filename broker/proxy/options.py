"""The options of ``oncelog proxy``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from oncelog.broker.config.options import (
    SYNONYMOUS_OPTIONS,
    Parser,
    UsageError,
    add_acl_option,
    add_control_options,
    add_interceptor_options,
    flag_of,
    options_of,
    serve_options,
    unknown_option,
    variable_of,
)

_SYNONYMOUS_OPTIONS = {
    **{one: meant for one, meant in SYNONYMOUS_OPTIONS.items() if meant in ("--listen", "--advertise", "-c")},
    "--bootstrap-server": "--upstream",
    "--bootstrap-servers": "--upstream",
    "--brokers": "--upstream",
    "--command-config": "--upstream-config",
    "--port": "--listen",
    "-b": "--upstream",
    "-p": "--listen",
}
"""Options of other programs and of ``oncelog serve``, and the proxy's options for the same purpose."""
_EPILOG = """\
Each option has an environment variable, named in brackets, where commas separate several values, if nothing else is
said.

Clients connect to --listen, and are told of a port of the proxy for each of the cluster's nodes: the ports after it, or
those after --node-ports. When clients can connect, oncelog writes one line to standard output. Logs go to standard
error. SIGTERM, SIGHUP and Ctrl-C stop the proxy cleanly, with exit code 0; a second signal stops it at once.
"""


def parse_proxy_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of ``oncelog proxy``, None for those that are not set. Raises UsageError.

    If ``help`` is set, ignore all other options."""
    parser = _parser()
    if not {"-h", "--help"}.isdisjoint(arguments):
        return argparse.Namespace(help=True)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        if not unknown[0].startswith("-"):
            raise UsageError(f"unknown argument {unknown[0]}; see oncelog proxy --help")
        option = unknown[0].partition("=")[0]
        if option in serve_options() and option not in _SYNONYMOUS_OPTIONS:
            raise UsageError(f"unknown option {option}; it is one of oncelog serve")
        raise UsageError(unknown_option(option, proxy_options(), "oncelog proxy", _SYNONYMOUS_OPTIONS))
    return options


def proxy_options() -> list[str]:
    """Return the options of ``oncelog proxy``."""
    return options_of(_parser())


def proxy_help_text() -> str:
    """Return the text for ``--help``."""
    return _parser().format_help()


def _parser() -> Parser:
    parser = Parser(
        prog="oncelog proxy",
        usage="oncelog proxy --upstream HOST:PORT[,HOST:PORT...] [OPTION ...]",
        description="Stand before a Kafka cluster: clients connect here, and may be watched, secured and disturbed.",
        epilog=_EPILOG,
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(option: str, text: str, **more: object) -> None:
        parser.add_argument(flag_of(option), help=f"{text} [{variable_of(option)}]", **more)  # type: ignore[arg-type]

    add("upstream", "brokers of the cluster; may be repeated", metavar="HOST:PORT", action="append")
    add(
        "listen",
        "listen there (default: 127.0.0.1:9092); port 0 takes free ones; may be repeated, with a name each",
        metavar="[NAME://]HOST:PORT",
        action="append",
    )
    add(
        "advertise",
        "tell clients to connect there (default: where it listens); the host holds for the nodes, too",
        metavar="[NAME://]HOST:PORT",
        action="append",
    )
    add(
        "node_ports",
        "the port of the first node, others follow (default: the port after the listener's); 0 takes free ones",
        metavar="[NAME=]PORT",
        action="append",
    )
    add(
        "upstream_config",
        "TLS and log-in at the cluster, as the client.properties of Kafka's tools",
        metavar="FILE",
    )
    add("upstream_users", "as whom to log in at the cluster for each user here: a TOML file", metavar="FILE")
    add("user", "a user who may log in here; may be repeated", metavar="NAME:PASSWORD", action="append")
    add_acl_option(add)
    add(
        "data_dir",
        "keep users, ACLs, quotas and delegation tokens that are made through the proxy there (default: in memory)",
        metavar="DIR",
    )
    parser.add_argument(
        "--pass-logins",
        action="store_true",
        help="clients log in at the cluster, through the proxy [ONCELOG_PASS_LOGINS]",
    )
    parser.add_argument(
        "-c",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set one of Kafka's keys, of listeners, log-ins, rights and quotas; may be repeated [KAFKA_KEY]",
    )
    add_control_options(add)
    add_interceptor_options(add)
    add("log_format", "how log lines look: human (default) or json", metavar="FORMAT")
    add("log_level", "which log lines are written: debug, info (default), warning or error", metavar="LEVEL")
    parser.add_argument("-h", "--help", action="store_true", help="print this")
    return parser
