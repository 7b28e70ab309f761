"""The settings of the fixtures, from all places.

From the weakest to the strongest: the ini file, variables of the environment, the command line, the factory's
arguments, the markers from the module's to the function's. ``topics`` and ``config`` are joined, topic by topic and key
by key; any other setting replaces the weaker one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import pytest


class KafkaSettings(TypedDict, total=False):
    """The settings of a factory and of ``@pytest.mark.kafka``: the arguments of `oncelog.Broker`, which documents them.

    faults: a rule or several for ``kafka.faults.add``, or the path of a file for ``kafka.faults.load``.
    """

    topics: Mapping[str, object] | Iterable[str]
    config: Mapping[str, object]
    data_dir: str | os.PathLike[str]
    port: int
    seed: int
    requests_kept: int
    version: str
    users: Mapping[str, str]
    acls: Iterable[object]
    tls: bool | Literal["expired", "of_a_stranger", "other_host"]
    oauth: bool
    nodes: int | Mapping[int, Mapping[str, object]]
    process: bool
    from_snapshot: str | os.PathLike[str] | bytes
    snapshot_bytes_max: int
    faults: Mapping[str, object] | Iterable[Mapping[str, object]] | str | os.PathLike[str]


NAMES = tuple(KafkaSettings.__annotations__)
PATHS = ("from_snapshot", "faults")
"""Settings that are files of the project: relative to pytest's rootdir."""
JOINED = ("topics", "config")
"""Settings that all places together make up."""


IGNORE, WARN, ERROR = "ignore", "warn", "error"


class SettingError(Exception):
    """An invalid setting. The message names its place."""


@dataclass
class Settings:
    """The settings of one fixture."""

    bootstrap_servers: str | None = None
    """The cluster to use instead of a broker of its own."""
    command_config: Mapping[str, object] | str | os.PathLike[str] | None = None
    """How to log in to it, by the keys of Kafka's clients."""
    through_proxy: bool = False
    """Whether the test reaches it through a proxy."""
    unfired_rules: str = IGNORE
    """What becomes of a test with a rule that never fired."""
    left_clients: str = WARN
    """What becomes of a test that leaves clients behind."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """For `oncelog.Broker`, but for ``faults``."""
    of_the_test: set[str] = field(default_factory=set)
    """The arguments that a factory or a marker gave: the test depends on them."""
    has_own_faults: bool = False
    """Whether ``faults`` are those of one test's markers."""

    def join(self, given: Mapping[str, Any], place: str) -> None:
        """Add the settings of a stronger place. Raises SettingError."""
        for name, value in given.items():
            if name not in NAMES:
                raise unknown_setting(place, name, NAMES)
            if name in JOINED:
                value = {**self.arguments.get(name, {}), **_as_mapping(name, value, place)}
            self.arguments[name] = value


def unknown_setting(place: str, name: str, known: Sequence[str]) -> SettingError:
    """Return the error for a setting that is not among the known ones."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    return SettingError(f"{place}: no setting {name!r}: {meant}expected {', '.join(known)}")


def _as_mapping(name: str, value: object, place: str) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    if name == "topics" and isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return dict.fromkeys(value, 1)
    expected = 'a list of names, or {"orders": 3}' if name == "topics" else '{"message.max.bytes": 5000000}'
    raise SettingError(f"{place}: {name}={value!r}: expected {expected}")


# -- the command line and the ini file


def _topic(text: str) -> tuple[str, object]:
    name, separator, partitions = text.partition(":")
    if not name or (separator and not partitions.isdecimal()):
        raise ValueError("expected NAME or NAME:PARTITIONS")
    return name, int(partitions or 1)


def _config(text: str) -> tuple[str, object]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ValueError("expected KEY=VALUE")
    return key.strip(), value.strip()


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a number")
    return int(text)


def _one_of(*words: str) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return text

    return read


def _switch(text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError("expected true or false")
    return text.lower() in ("1", "true", "yes", "on")


@dataclass(frozen=True)
class _Option:
    setting: str
    option: str
    ini: str
    metavar: str
    parse: Callable[[str], Any]
    help: str
    variable: str | None = None
    """The variable of the environment that sets it, too."""
    is_path: bool = False
    """Whether a relative path starts where pytest was started; in the ini file, at its rootdir."""

    @property
    def is_list(self) -> bool:
        return self.setting in JOINED

    @property
    def is_switch(self) -> bool:
        """Whether the option has no value."""
        return self.parse is _switch

    def given(self, config: pytest.Config) -> Iterator[tuple[str, list[str]]]:
        """Yield each place that sets it, and the texts there, from the weakest to the strongest."""
        variable = os.environ.get(self.variable, "") if self.variable else ""
        here = config.invocation_params.dir
        for place, given, folder in (
            (f"{self.ini} in the ini file", config.getini(self.ini), config.rootpath),
            (f"{self.variable} in the environment", variable, here),
            (self.option, config.getoption(self.ini), here),
        ):
            texts = given if isinstance(given, list) else [given] if given else []
            if texts:
                yield place, [str(folder / text) for text in texts] if self.is_path else texts


OPTIONS = (
    _Option(
        "bootstrap_servers",
        "--kafka-bootstrap-servers",
        "kafka_bootstrap_servers",
        "HOST:PORT,...",
        str,
        "use this Kafka cluster instead of a broker for each test; tests that need more than a cluster can do are "
        "skipped",
        "ONCELOG_KAFKA_BOOTSTRAP_SERVERS",
    ),
    _Option(
        "command_config",
        "--kafka-command-config",
        "kafka_command_config",
        "FILE",
        str,
        "how to log in to that cluster: a client.properties, as --command-config of Kafka's tools",
        "ONCELOG_KAFKA_COMMAND_CONFIG",
        is_path=True,
    ),
    _Option(
        "through_proxy",
        "--kafka-through-proxy",
        "kafka_through_proxy",
        "",
        _switch,
        "put a proxy before that cluster, so that fault rules, requests() and wait_for() work there, and clients need "
        "no log-in",
    ),
    _Option(
        "topics",
        "--kafka-topic",
        "kafka_topics",
        "NAME[:PARTITIONS]",
        _topic,
        "a topic that every broker has at its start",
    ),
    _Option("config", "--kafka-config", "kafka_config", "KEY=VALUE", _config, "broker configuration"),
    _Option(
        "version",
        "--kafka-version",
        "kafka_version",
        "3.9",
        str,
        "the release of Kafka that every broker is like",
    ),
    _Option(
        "nodes",
        "--kafka-nodes",
        "kafka_nodes",
        "N",
        _number,
        "how many nodes every broker has; see docs/how-to/nodes.md",
    ),
    _Option(
        "faults",
        "--kafka-faults",
        "kafka_faults",
        "FILE",
        str,
        "rules of faults that every broker starts with",
    ),
    _Option(
        "seed", "--kafka-seed", "kafka_seed", "N", _number, "the seed of every broker, as a report showed it"
    ),
    _Option(
        "unfired_rules",
        "--kafka-unfired-rules",
        "kafka_unfired_rules",
        "error",
        _one_of(ERROR, IGNORE),
        "fail a test that passes though a rule of it never fired; ignore, the default, lets it pass",
    ),
    _Option(
        "left_clients",
        "--kafka-left-clients",
        "kafka_left_clients",
        "error",
        _one_of(ERROR, WARN, IGNORE),
        "add an error to a test that leaves clients connected to a broker of later tests; warn, the default, warns; "
        "ignore says nothing",
    ),
)


def add_options(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("oncelog", "oncelog: a Kafka broker for each test")
    for row in OPTIONS:
        variable = f" [{row.variable}]" if row.variable else ""
        if row.is_switch:
            group.addoption(row.option, action="store_const", const="true", dest=row.ini, help=row.help)
        else:
            action = "append" if row.is_list else "store"
            group.addoption(
                row.option, action=action, metavar=row.metavar, dest=row.ini, help=row.help + variable
            )
        kind: Literal["linelist", "string"] = "linelist" if row.is_list else "string"
        parser.addini(row.ini, row.help, type=kind)


def common_settings(config: pytest.Config) -> Settings:
    """Return the settings of the ini file, the environment and the command line. Raises SettingError."""
    settings = Settings()
    for row in OPTIONS:
        for place, texts in row.given(config):
            try:
                values = [row.parse(text) for text in texts]
            except ValueError as error:
                raise SettingError(f"{place}: {', '.join(texts)}: {error}") from None
            if row.setting in NAMES:
                settings.join({row.setting: dict(values) if row.is_list else values[0]}, place)
            else:
                setattr(settings, row.setting, values[0])
    return settings


def fixture_settings(request: pytest.FixtureRequest, given: KafkaSettings) -> Settings:
    """Return the settings of a fixture with these arguments of its factory. Raises SettingError."""
    settings = common_settings(request.config)
    settings.join(given, f"the factory of {request.fixturename}")
    settings.of_the_test.update(given)
    if request.scope != "session":
        for marker in reversed(list(request.node.iter_markers("kafka"))):
            if marker.args:
                raise SettingError("@pytest.mark.kafka takes keyword arguments, such as topics={'orders': 3}")
            settings.join(marker.kwargs, "@pytest.mark.kafka")
            settings.of_the_test.update(marker.kwargs)
            settings.has_own_faults |= "faults" in marker.kwargs and request.scope == "function"
    for name in PATHS:
        value = settings.arguments.get(name)
        if isinstance(value, str | os.PathLike):
            settings.arguments[name] = request.config.rootpath / value
    return settings
