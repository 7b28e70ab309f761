"""The sources of the configuration: a server.properties, ``-c key=value``, environment variables, flags.

Order of precedence: flags, ``-c``, environment, file, defaults; within one source the last setting of a key wins. No
I/O: the functions take texts and return settings, and `build_config` makes a `BrokerConfig` of them.

Environment variables set keys as in Kafka's container images: ``KAFKA_LOG_DIRS`` (apache/kafka, confluentinc,
wurstmeister) and ``KAFKA_CFG_LOG_DIRS`` (bitnami) set ``log.dirs``. Not every variable with this prefix sets a key:
images have variables of their own, applications name their broker in one, and Kubernetes sets some for a service named
kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig, is_known, key_of
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import parse_endpoint
from oncelog.broker.config.properties import parse_properties

ENVIRONMENT_ORIGIN = "environment variable "
PREFIX = "KAFKA_"
CFG_PREFIX = "KAFKA_CFG_"
# The cluster id is in the second variable in the images of apache and confluentinc, in the first in bitnami's.
CLUSTER_ID = ("KAFKA_KRAFT_CLUSTER_ID", "CLUSTER_ID")
CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
"""Topics for the start, in the images of wurstmeister and others: ``orders:3:1,changes:1:1:compact``."""
# Kafka's scripts (KafkaDockerWrapper, kafka-run-class.sh) or applications read these. Nobody takes them for keys, so
# there is no warning about them.
IGNORED_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "BOOTSTRAP_SERVER",
        "BOOTSTRAP_SERVERS",
        "BROKER",
        "BROKERS",
        "BROKER_URL",
        "CLASSPATH",
        "CLIENT_ID",
        CREATE_TOPICS.removeprefix(PREFIX),
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
# Kafka had these keys for a single listener up to 2.8. KAFKA_PORT and KAFKA_HOST_NAME usually belong to an application
# or to Kubernetes: they set a key only if KAFKA_ADVERTISED_HOST_NAME or KAFKA_ADVERTISED_PORT is set as well.
_ADVERTISED_HOST, _ADVERTISED_PORT = "advertised.host.name", "advertised.port"
_HOST, _PORT = "host.name", "port"
DEFAULT_PORT = "9092"


class Setting(NamedTuple):
    """The text that one source sets for a key. Messages show ``origin``: a file and line, a variable or an option."""

    name: str
    text: str
    origin: str


def build_config(*sources: Iterable[Setting], problems: list[str] | None = None) -> BrokerConfig:
    """Return the configuration that all sources make. A later source overrides an earlier one.

    Raises ConfigError with all problems; if ``problems`` is given, it adds them to that list instead."""
    chosen = {setting.name: setting for source in sources for setting in source}
    _apply_listeners_of_older_kafka(chosen)
    return BrokerConfig(
        {name: setting.text for name, setting in chosen.items()},
        {name: setting.origin for name, setting in chosen.items()},
        problems,
    )


def warnings_of(config: BrokerConfig) -> list[str]:
    """Return at most one warning: it names all set keys that have no effect, grouped by source."""
    names: dict[str, list[str]] = {}
    for name in config.without_effect:
        names.setdefault(_source_of(config.origins.get(name, "the program")), []).append(name)
    if not names:
        return []
    named = "; ".join(f"{', '.join(found)} [from {source}]" for source, found in names.items())
    return [f"keys of Kafka's that have no effect in oncelog: {named}"]


def _source_of(origin: str) -> str:
    """Return the origin without the line number or the variable's name."""
    if origin.startswith(ENVIRONMENT_ORIGIN):
        return "the environment"
    path, _, line = origin.rpartition(":")
    return path if line.isdecimal() else origin


def from_file(text: str, path: str, problems: list[str] | None = None) -> list[Setting]:
    """Return the settings of a server.properties. ``text`` is the file decoded as ISO-8859-1, as Java decodes it.

    Raises ConfigError for a malformed line; if ``problems`` is given, it adds the error to that list instead."""
    settings = []
    try:
        for name, value, line in parse_properties(text, path):
            settings.append(Setting(name, value, f"{path}:{line}"))
    except ConfigError as error:
        if problems is None:
            raise
        problems += error.problems
    return settings


def from_options(options: Iterable[str], problems: list[str] | None = None) -> list[Setting]:
    """Return the settings of all ``-c key=value`` options, in their order.

    Raises ConfigError for options without ``=``; if ``problems`` is given, it adds the errors to that list instead."""
    settings, malformed = [], []
    for option in options:
        name, equals, text = option.partition("=")
        if equals and name.strip():
            settings.append(Setting(name.strip(), text, "-c"))
        else:
            malformed.append(f"-c {option}: expected key=value")
    if problems is not None:
        problems += malformed
    elif malformed:
        raise ConfigError(*malformed)
    return settings


class EnvironmentSettings(NamedTuple):
    """``settings`` of environment variables, and the ``KAFKA_…`` variables ``without_key``: they set nothing."""

    settings: list[Setting]
    without_key: list[str]


def from_environment(environment: Mapping[str, str]) -> EnvironmentSettings:
    """Return the settings of ``KAFKA_…`` variables and of ``CLUSTER_ID``.

    ``KAFKA_CFG_X`` wins over ``KAFKA_X``. A ``broker.id`` of -1 is left out: it told Kafka 2 to choose an id."""
    settings = [
        Setting("oncelog.cluster.id", environment[variable], ENVIRONMENT_ORIGIN + variable)
        for variable in CLUSTER_ID
        if environment.get(variable)
    ]
    without_key = []
    variables = [name for name in environment if name.startswith(PREFIX) and name not in IGNORED_VARIABLES]
    for variable in sorted(variables, key=lambda name: (name.startswith(CFG_PREFIX), name)):
        name, text = environment_key(variable), environment[variable]
        if variable in CLUSTER_ID or (name == "broker.id" and text.strip() == "-1"):
            continue
        if not _sets_key(name, text):
            without_key.append(variable)
        else:
            settings.append(Setting(name, text, ENVIRONMENT_ORIGIN + variable))
    if not any(setting.name in (_ADVERTISED_HOST, _ADVERTISED_PORT) for setting in settings):
        ambient = [setting for setting in settings if setting.name in (_HOST, _PORT)]
        without_key += [setting.origin.removeprefix(ENVIRONMENT_ORIGIN) for setting in ambient]
        settings = [setting for setting in settings if setting not in ambient]
    return EnvironmentSettings(settings, without_key)


def _sets_key(name: str, text: str) -> bool:
    """Whether a variable with this name and text sets a key. A key without effect, or with one only in several nodes,
    must also be able to have the value: otherwise the variable probably belongs to an application."""
    if name in (_PORT, _ADVERTISED_PORT):
        return text.isdecimal()
    key = key_of(name)
    if key is None or (key.in_effect and not key.of_several_nodes):
        return is_known(name)
    try:
        key.parse(text)
    except ConfigError:
        return False
    return True


def environment_key(variable: str) -> str:
    """Return the key of a ``KAFKA_…`` variable: in lower case, ``.`` for ``_``, ``_`` for ``__``, ``-`` for ``___``."""
    prefix = CFG_PREFIX if variable.startswith(CFG_PREFIX) else PREFIX
    return variable.removeprefix(prefix).lower().replace("_", ".").replace("...", "-").replace("..", "_")


def _apply_listeners_of_older_kafka(chosen: dict[str, Setting]) -> None:
    """If ``listeners`` is not set, derive it from the settings that older Kafka images use.

    If the environment sets ``advertised.listeners``, the broker listens on its ports, at all addresses (confluentinc's
    image up to 7). If nobody sets ``advertised.listeners``, ``host.name``, ``port``, ``advertised.host.name`` and
    ``advertised.port`` make up both (``KafkaConfig`` of Kafka 2.8)."""
    if "listeners" in chosen:
        return
    advertised = chosen.get("advertised.listeners")
    if advertised is not None:
        if advertised.origin.startswith(ENVIRONMENT_ORIGIN):
            try:
                endpoints = [parse_endpoint(text.strip()) for text in advertised.text.split(",")]
            except ValueError:
                return  # `resolve_listeners` reports it
            texts = ",".join(f"{endpoint.listener}://:{endpoint.port}" for endpoint in endpoints)
            chosen["listeners"] = Setting("listeners", texts, advertised.origin)
        return
    old = {
        name: chosen.pop(name)
        for name in (_HOST, _PORT, _ADVERTISED_HOST, _ADVERTISED_PORT)
        if name in chosen
    }
    if not old:
        return
    text = {name: setting.text.strip() for name, setting in old.items()}
    host, port = text.get(_HOST, ""), text.get(_PORT, DEFAULT_PORT)
    advertised_text = f"PLAINTEXT://{text.get(_ADVERTISED_HOST, host)}:{text.get(_ADVERTISED_PORT, port)}"
    listen_origin, *_, advertised_origin = (setting.origin for setting in (*old.values(), *old.values()))
    chosen["listeners"] = Setting("listeners", f"PLAINTEXT://{host}:{port}", listen_origin)
    chosen["advertised.listeners"] = Setting("advertised.listeners", advertised_text, advertised_origin)
