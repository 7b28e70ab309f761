"""The parser of the command line, and its error messages.

No I/O. `listener_text` translates the values of options, set by flags or by environment variables, into Kafka's form.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

VARIABLE_PREFIX = "ONCELOG_"
COMMAND = "serve"
CERTS_COMMAND = "certs"
PROXY_COMMAND = "proxy"
PROVE_COMMAND = "prove"
LOG_FORMATS = ("human", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOCAL_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_CONTROL_PORT = 9093
PORT_MAX = 65535
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

PLURALS = {"topic": "topics"}
"""Options of whose variables the name says that they hold several."""
SYNONYMOUS_OPTIONS = {
    "--address": "--listen",
    "--advertised-listeners": "--advertise",
    "--bind": "--listen",
    "--bootstrap-server": "--listen",
    "--dir": "--data-dir",
    "--host": "--listen",
    "--listeners": "--listen",
    "--log-dirs": "--data-dir",
    "--override": "-c",
    "--properties": "--config",
    "--set": "-c",
    "-D": "-c",
    "-p": "--port",
    "-v": "--version",
}
"""Options of Kafka's scripts and of other servers, and oncelog's options for the same purpose."""

_EPILOG = """\
Each option has an environment variable, named in brackets. Variables can set Kafka's keys too, as in its container
image: KAFKA_LOG_RETENTION_MS=60000 sets log.retention.ms (in capitals; . is _, _ is __, - is ___), and CLUSTER_ID
sets the cluster id. Options win over -c, -c over the environment, and the environment over the file.

When clients can connect, oncelog writes one line to standard output: address, node id, cluster id, data directory,
and all listeners if there are several. Logs go to standard error. SIGTERM, SIGHUP and Ctrl-C stop the broker cleanly,
with exit code 0; a second signal stops it at once.
"""


class UsageError(Exception):
    """The command line or the environment is invalid."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        option, _, complaint = message.removeprefix("argument ").partition(": ")
        if complaint == "expected one argument":
            raise UsageError(f"{option} needs a value")
        if complaint.startswith("ignored explicit argument"):
            raise UsageError(f"{option} takes no value")
        raise UsageError(message)


def parse_arguments(
    arguments: Sequence[str], proxy_options: Callable[[], Collection[str]] = tuple
) -> argparse.Namespace:
    """Return the options of a command line, None for those that are not set. Raises UsageError.

    The command ``serve`` may be left out. If ``help`` or ``version`` is set, ignore all other options.
    ``proxy_options`` returns those of ``oncelog proxy``, which the error about an unknown one names."""
    parser = _parser()
    if not {"-h", "--help"}.isdisjoint(arguments):
        return argparse.Namespace(help=True, version=False)
    options, unknown = parser.parse_known_intermixed_args(arguments)
    known = options_of(parser)
    words = options.words[1:] if options.words[:1] == [COMMAND] else options.words
    is_unknown_command = words is options.words and words[:1] == list(arguments[:1])
    if unknown and not is_unknown_command:
        option = unknown[0].partition("=")[0]
        if option in proxy_options():
            raise UsageError(f"unknown option {option}; it is one of oncelog proxy")
        raise UsageError(unknown_option(option, known))
    if words:
        kind = "command" if words is options.words else "argument"
        if (options.user or options.acl or options.settings) and words[0] != arguments[0]:
            raise UsageError(SPLIT_VALUE)
        raise UsageError(_unknown_word(words[0], kind, known))
    if "" in options.settings:
        raise UsageError("-c needs a value")
    for name, value in vars(options).items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise UsageError(f"{flag_of(name)} needs a value")
    exclusive = (
        ("port", "listen"),
        ("data_dir", "ephemeral"),
        ("data_dir", "memory"),
        ("ephemeral", "memory"),
    )
    for one, other in exclusive:
        if getattr(options, one) and getattr(options, other):
            raise UsageError(f"{flag_of(one)} and {flag_of(other)} exclude each other")
    return options


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options that a parser knows."""
    names = vars(parser.parse_args([]))
    return ["-c", *(flag_of(name) for name in names if name not in ("words", "settings"))]


def serve_options() -> list[str]:
    """Return the options of ``oncelog serve``."""
    return options_of(_parser())


def help_text() -> str:
    """Return the text for ``--help``."""
    return _parser().format_help()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else: ``localhost``, or an address such as 127.0.0.1 or [::1]."""
    import ipaddress

    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def checked_token(text: str, origin: str) -> str:
    """Return the token of the control API. Raises UsageError for one that no HTTP header can carry."""
    token = text.strip()
    if not token or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(f"{origin}: expected a token: one line of ASCII characters without spaces")
    return token


def control_address(text: str, origin: str, token: str | None) -> tuple[str, int]:
    """Return host and port of ``--control``. Raises UsageError for an address that is open to others, and no token."""
    host, port = host_and_port(text, origin, DEFAULT_CONTROL_PORT)
    if token is None and not is_loopback(host):
        raise UsageError(
            f"{origin}={text}: others can reach this address, so the control API needs a token there: "
            "--control-token-file FILE"
        )
    return host.removeprefix("[").removesuffix("]"), port


def _parser() -> Parser:
    parser = Parser(
        prog="oncelog",
        usage="oncelog [serve] [OPTION ...]\n       oncelog proxy --upstream HOST:PORT  (before a Kafka "
        "cluster; see oncelog proxy --help)\n       oncelog prove OPTION ... -- COMMAND  (whether a program "
        "is exactly-once; see oncelog prove --help)\n       oncelog certs DIR  (certificates for development)",
        description="Run a Kafka-compatible broker: on 127.0.0.1:9092 if no option says otherwise.",
        epilog=_EPILOG,
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)

    def add(option: str, text: str, **more: object) -> None:
        parser.add_argument(flag_of(option), help=f"{text} [{variable_of(option)}]", **more)  # type: ignore[arg-type]

    add("port", "listen on 127.0.0.1 at this port; 0 takes a free one (default: 9092)", metavar="PORT")
    add("listen", "listen there; an empty host is every address", metavar="HOST:PORT")
    add("advertise", "tell clients to connect there (default: where it listens)", metavar="HOST:PORT")
    add("data_dir", "keep data there (default: in the user's data directory)", metavar="DIR")
    add("ephemeral", "keep data in a directory that is removed at the end", action="store_true", default=None)
    add("memory", "keep data in memory", action="store_true", default=None)
    add("nodes", "how many nodes the cluster has (default: 1); the ports of others follow", metavar="N")
    add("config", "read a server.properties", metavar="FILE")
    parser.add_argument(
        "-c",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set one of Kafka's keys; may be repeated [KAFKA_KEY]",
    )
    add(
        "topic",
        "create this topic if it is not there; may be repeated (in the variable: one a line, or with commas)",
        metavar="NAME[:PARTITIONS[:REPLICAS]][:KEY=VALUE ...]",
        action="append",
    )
    add("log_format", "how log lines look: human (default) or json", metavar="FORMAT")
    add("log_level", "which log lines are written: debug, info (default), warning or error", metavar="LEVEL")
    add_control_options(add)
    add(
        "user",
        "a user who logs in by PLAIN or SCRAM; may be repeated; without other listeners there is only one, with "
        "SASL_PLAINTEXT (in the variable: one a line)",
        metavar="NAME:PASSWORD",
        action="append",
    )
    add_acl_option(add)
    add_interceptor_options(add)
    add("from_snapshot", "start with the data in this snapshot; the data directory is empty", metavar="FILE")
    add(
        "snapshot_bytes_max",
        "how many bytes that snapshot may unpack to, in memory (default: 536870912)",
        metavar="BYTES",
    )
    add("as_version", "serve what a broker of that release of Kafka serves, such as 3.9", metavar="VERSION")
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("-h", "--help", action="store_true", help="print this")
    return parser


def add_control_options(add: Callable[..., None]) -> None:
    """Add the options of the control API and of rules, by ``add(name, help, **more)``."""
    add("control", "serve the control API there: HTTP, for tests (default port: 9093)", metavar="HOST:PORT")
    add(
        "control_token_file",
        "a file with the token that the control API asks for, without which it listens on this machine only; the "
        "variable ONCELOG_CONTROL_TOKEN holds the token itself",
        metavar="FILE",
    )
    add(
        "faults",
        "let go wrong what the rules in this file say (.json, .toml or .yaml); may be repeated",
        metavar="FILE",
        action="append",
    )


def add_acl_option(add: Callable[..., None]) -> None:
    """Add the option of ACLs, by ``add(name, help, **more)``."""
    add(
        "acl",
        "what somebody may do: [deny] PRINCIPAL OPERATION RESOURCE[:NAME] [from HOST]; with one, nobody but "
        "super.users may do what no ACL allows; may be repeated (in the variable: one a line)",
        metavar="ACL",
        action="append",
    )


def add_interceptor_options(add: Callable[..., None]) -> None:
    """Add the options of the trace and of filters, by ``add(name, help, **more)``."""
    add(
        "filter",
        "show requests and responses to this oncelog.Interceptor, which may change or refuse them; may be repeated "
        "(in the variable: one a line)",
        metavar="MODULE:NAME[,SETTING=VALUE]",
        action="append",
    )
    add("trace", "print each request and response, a line each", action="store_true", default=None)
    add("trace_records", "print their records, too", action="store_true", default=None)
    for what, example in (("client", "client id"), ("api", "API"), ("topic", "topic"), ("group", "group")):
        add(
            f"trace_{what}",
            f"print only those of this {example}; may be repeated, and have the wildcards * and ?",
            metavar="NAME",
            action="append",
        )


def flag_of(option: str) -> str:
    """Return an option's flag."""
    return "--" + option.replace("_", "-")


def variable_of(option: str) -> str:
    """Return the name of an option's environment variable."""
    return VARIABLE_PREFIX + PLURALS.get(option, option).upper()


SECRET_PARTS = ("password", "secret", "jaas", "credential", "token", ".key")
"""Parts of the names of keys whose values no message shows."""
SPLIT_VALUE = "an argument too many: a value with spaces needs quotes; see oncelog --help"
"""The message does not show it: it may be the rest of a password."""


def unknown_option(
    option: str,
    known: Sequence[str],
    command: str = "oncelog",
    synonymous: Mapping[str, str] = SYNONYMOUS_OPTIONS,
) -> str:
    """Return the error about an option that is none of the ``known``.

    synonymous: options of other programs, with those of ours for the same purpose.
    """
    if "." in option:
        key = option.lstrip("-")
        return f"unknown option {option}; Kafka's keys are set so: -c {key}=VALUE"
    meant = synonymous.get(option) or closest(option.replace("_", "-").lower(), known)
    return f"unknown option {option}; {suggestion(meant, command)}"


def _unknown_word(word: str, kind: str, known: Sequence[str]) -> str:
    key = word.partition("=")[0]
    name, colon, password = word.partition(":")
    if colon and not password.isdecimal() and key == word and "/" not in word:
        return f"unknown {kind} {name}:…; {suggestion('--user NAME:PASSWORD')}"
    if word.isdecimal():
        meant: str | None = f"--port {word}"
    elif key != word:
        word = f"{key}=VALUE" if any(part in key for part in SECRET_PARTS) else word
        meant = f"-c {word}"
    elif word.endswith(".properties"):
        meant = f"--config {word}"
    else:
        meant = closest(word.lower(), [COMMAND, CERTS_COMMAND, PROXY_COMMAND, PROVE_COMMAND]) or closest(
            "--" + word.lower(), known
        )
    return f"unknown {kind} {word}; {suggestion(meant)}"


def suggestion(meant: str | None, command: str = "oncelog") -> str:
    """Return the second half of an error about an unknown word: a question whether this word is meant, or a hint."""
    return f"did you mean {meant}?" if meant else f"see {command} --help"


def closest(word: str, known: Sequence[str]) -> str | None:
    """Return the most similar of the known words, or None if no word is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, 1, 0.7)), None)


class Given:
    """What a command line says of each option, else its environment variable; nothing of an option that the command
    does not have.
    """

    def __init__(self, options: argparse.Namespace, environment: Mapping[str, str]) -> None:
        self.options = options
        self.environment = environment

    def _variable(self, option: str) -> str:
        return self.environment.get(variable_of(option), "") if hasattr(self.options, option) else ""

    def text(self, option: str) -> tuple[str, str]:
        """Return the value, empty without one, and its origin for messages: the flag, or the variable."""
        given = getattr(self.options, option, None)
        return (given, flag_of(option)) if given else (self._variable(option), variable_of(option))

    def texts(self, option: str, separator: str = "\n") -> tuple[list[str], str]:
        """Return the values of an option that may be repeated, and their origin. In the variable, a ``separator``
        stands between them.
        """
        given: list[str] | None = getattr(self.options, option, None)
        if given:
            return given, flag_of(option)
        texts = self._variable(option).split(separator)
        return [text for text in texts if text.strip()], variable_of(option)

    def is_true(self, option: str) -> bool:
        """Return whether an option without a value is set. Raises UsageError for a variable that says neither."""
        if getattr(self.options, option, None):
            return True
        text = self._variable(option).lower()
        if text not in ("", *BOOLEANS):
            raise UsageError(f"{variable_of(option)}={text}: expected true or false")
        return BOOLEANS.get(text, False)

    def choice(self, option: str, allowed: Sequence[str]) -> str | None:
        """Return a value in lower case, None without one. Raises UsageError if it is not among ``allowed``."""
        text, origin = self.text(option)
        if text and text.lower() not in allowed:
            raise UsageError(f"{origin}={text}: expected {', '.join(allowed[:-1])} or {allowed[-1]}")
        return text.lower() or None


def listener_text(option: str, text: str, origin: str, protocol: str = "PLAINTEXT") -> str:
    """Return the value of ``--port``, ``--listen`` or ``--advertise`` in the form of Kafka's ``listeners``.

    A value in this form (``NAME://HOST:PORT,…``) is returned as it is. A port without a host is on 127.0.0.1. A host
    without a port has Kafka's port for ``--listen``, and the listener's port for ``--advertise``. An empty host means
    every address for ``--listen``, and this machine's name for ``--advertise``. ``protocol`` is the listener's.
    Raises UsageError."""
    if "://" in text and option != "port":
        return text
    if option == "advertise" and text.isdecimal():
        raise UsageError(f"{origin}={text}: expected HOST:PORT")
    if option == "port" and not text.isdecimal():
        raise UsageError(f"{origin}={text}: expected a number from 0 to {PORT_MAX}")
    host, port = host_and_port(text, origin, 0 if option == "advertise" else DEFAULT_PORT)
    return f"{protocol}://{host}:{port}"


def host_and_port(text: str, origin: str, default_port: int) -> tuple[str, int]:
    """Return the host, with the brackets of an IPv6 address, and the port. A port alone is on 127.0.0.1.

    Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if text.isdecimal():
        host, port = LOCAL_HOST, text
    elif not colon or text.endswith("]"):
        host, port = text, str(default_port)
    elif ":" in host and not host.startswith("["):
        raise UsageError(f"{origin}={text}: an IPv6 address stands in brackets, as in [::1]:9092")
    if not (port.isascii() and port.isdecimal()):
        raise UsageError(f"{origin}={text}: expected HOST:PORT")
    if int(port) > PORT_MAX:
        raise UsageError(f"{origin}={text}: expected a port from 0 to {PORT_MAX}")
    return host, int(port)
