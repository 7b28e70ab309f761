"""Where configuration comes from: a server.properties, ``-c key=value``, the environment, flags.

What is set twice is decided by where: flags before ``-c`` before the environment before the file before
defaults; within one source the last wins. Pure: texts come in, `BrokerConfig` comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ENVIRONMENT_PREFIX = "KAFKA_"
# KAFKA_… variables that are for the scripts and the image around Kafka, not keys (KafkaDockerWrapper,
# kafka-run-class.sh), and those by which programs are commonly told of their broker.
NOT_KEYS = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        "BOOTSTRAP_SERVER",
        "BOOTSTRAP_SERVERS",
        "BROKER",
        "BROKERS",
        "BROKER_URL",
        "CLASSPATH",
        "CLIENT_ID",
        "DEBUG",
        "DEBUG_OPTS",
        "GC_LOG_OPTS",
        "GROUP_ID",
        "HEAP_OPTS",
        "HOME",
        "JMX_HOSTNAME",
        "JMX_OPTS",
        "JMX_PORT",
        "JVM_PERFORMANCE_OPTS",
        "LOG4J_CMD_OPTS",
        "LOG4J_LOGGERS",
        "LOG4J_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "MODE",
        "OPTS",
        "TOPIC",
        "TOPICS",
        "URL",
        "TOOLS_LOG4J_LOGLEVEL",
        "VERSION",
    )
)

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class Setting(NamedTuple):
    """One key as it was given; `origin` says where, for messages."""

    name: str
    text: str
    origin: str


def build_config(*sources: Iterable[Setting]) -> BrokerConfig:
    """The configuration of all sources, the first of which counts least. Raises `ConfigError`."""
    chosen = {setting.name: setting for source in sources for setting in source}
    return BrokerConfig(
        {name: setting.text for name, setting in chosen.items()},
        {name: setting.origin for name, setting in chosen.items()},
    )


def warnings_of(config: BrokerConfig) -> list[str]:
    """A sentence for each given key that changes nothing."""
    return [
        f"{name} is known to Kafka, has no effect in oncelog [from {config.origins.get(name, 'the program')}]"
        for name in config.without_effect
    ]


def from_file(text: str, path: str) -> list[Setting]:
    """The settings of a server.properties; `text` is its bytes as ISO-8859-1 (as Java reads it). Raises
    `ConfigError`."""
    return [Setting(name, value, f"{path}:{line}") for name, value, line in parse_properties(text, path)]


def from_options(options: Iterable[str]) -> list[Setting]:
    """The settings of repeated ``-c key=value``. Raises `ConfigError` where there is no ``=``."""
    settings = []
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"-c {option}: expected key=value")
        settings.append(Setting(name.strip(), text, "-c"))
    return settings


def from_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The settings of ``KAFKA_*`` variables, by the rule of Kafka's image, and of ``CLUSTER_ID``."""
    settings = [
        Setting(environment_key(variable), text, f"environment variable {variable}")
        for variable, text in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_KEYS
    ]
    if environment.get("CLUSTER_ID"):
        settings.append(
            Setting("oncelog.cluster.id", environment["CLUSTER_ID"], "environment variable CLUSTER_ID")
        )
    return settings


def environment_key(variable: str) -> str:
    """The key that a ``KAFKA_*`` variable sets: lower case, ``_`` is ``.``, ``__`` is ``_``, ``___`` is
    ``-``."""
    dotted = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def parse_properties(text: str, path: str = "server.properties") -> Iterator[tuple[str, str, int]]:
    """The (key, value, line number) entries of Java's .properties format (``java.util.Properties.load``).

    Comments begin with ``#`` or ``!``; key and value are separated by ``=``, ``:`` or blanks; a backslash
    escapes, and at a line's end continues it. Raises `ConfigError` for a broken ``\\uXXXX``."""
    for line, number in _logical_lines(text):
        key, value = _split(line)
        try:
            yield _unescaped(key), _unescaped(value), number
        except ValueError:
            raise ConfigError(f"{path}:{number}: malformed \\uXXXX escape in {line!r}") from None


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines without comments and blank lines, continued ones joined, each with the number of its first
    line."""
    joined, first, continued = "", 0, False
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continued = False
                continue
            first = number
        joined += line
        continued = (len(joined) - len(joined.rstrip("\\"))) % 2 == 1 and line.endswith("\\")
        if continued:
            joined = joined[:-1]
        else:
            yield joined, first
            joined = ""
    if joined or continued:
        yield joined, first


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:at], rest


def _unescaped(text: str) -> str:
    """The text with its escapes resolved. Raises ValueError for a ``\\u`` without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            char = text[at : at + 1]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                    raise ValueError(text)
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)
