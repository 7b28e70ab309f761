"""Where configuration comes from: a server.properties, ``-c key=value``, the environment, flags.

What is set twice is decided by where: flags before ``-c`` before the environment before the file before
defaults; within one source the last wins. Pure: texts come in, `BrokerConfig` comes out.

The environment is read as the container images around Kafka read it: ``KAFKA_LOG_DIRS`` (apache/kafka,
confluentinc, wurstmeister) and ``KAFKA_CFG_LOG_DIRS`` (bitnami) are ``log.dirs``. Many other variables begin so: the
images' own, those that tell an application of its broker, and those that Kubernetes makes for a service named kafka.
They are no keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig, is_known, key_of
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import parse_endpoint
from oncelog.broker.config.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENVIRONMENT_ORIGIN = "environment variable "
PREFIX = "KAFKA_"
CFG_PREFIX = "KAFKA_CFG_"
# Variables that set the cluster id: of the images of apache and confluentinc, and of bitnami.
CLUSTER_ID = ("KAFKA_KRAFT_CLUSTER_ID", "CLUSTER_ID")
# For the scripts around Kafka (KafkaDockerWrapper, kafka-run-class.sh), and by which programs are commonly told of
# their broker: nobody takes these for keys, so they are not even warned of.
NOT_KEYS = frozenset(
    PREFIX + name
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
# Kafka's keys up to 2.8 for a single listener. KAFKA_PORT and KAFKA_HOST_NAME are more often an application's, or
# Kubernetes', and count beside one of the others only.
_TOLD_HOST, _TOLD_PORT = "advertised.host.name", "advertised.port"
_HOST, _PORT = "host.name", "port"
DEFAULT_PORT = "9092"


class Setting(NamedTuple):
    """One key as it was given; `origin` says where, for messages."""

    name: str
    text: str
    origin: str


def build_config(*sources: Iterable[Setting], problems: list[str] | None = None) -> BrokerConfig:
    """The configuration of all sources, the first of which counts least.

    Raises `ConfigError` with all that is wrong, or, given a list of `problems`, adds it to them."""
    chosen = {setting.name: setting for source in sources for setting in source}
    _take_listeners_as_before(chosen)
    return BrokerConfig(
        {name: setting.text for name, setting in chosen.items()},
        {name: setting.origin for name, setting in chosen.items()},
        problems,
    )


def warnings_of(config: BrokerConfig) -> list[str]:
    """A sentence that names the given keys that change nothing, by where they come from; or none."""
    names: dict[str, list[str]] = {}
    for name in config.without_effect:
        names.setdefault(_source_of(config.origins.get(name, "the program")), []).append(name)
    if not names:
        return []
    named = "; ".join(f"{', '.join(found)} [from {source}]" for source, found in names.items())
    return [f"keys of Kafka's that have no effect in oncelog: {named}"]


def _source_of(origin: str) -> str:
    """An origin without the line or the variable."""
    if origin.startswith(ENVIRONMENT_ORIGIN):
        return "the environment"
    path, _, line = origin.rpartition(":")
    return path if line.isdecimal() else origin


def from_file(text: str, path: str, problems: list[str] | None = None) -> list[Setting]:
    """The settings of a server.properties; `text` is its bytes as ISO-8859-1 (as Java reads it).

    Raises `ConfigError`, or adds to the `problems` given, for a line that cannot be read."""
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
    """The settings of repeated ``-c key=value``.

    Raises `ConfigError`, or adds to the `problems` given, for each without ``=``."""
    settings, wrong = [], []
    for option in options:
        name, equals, text = option.partition("=")
        if equals and name.strip():
            settings.append(Setting(name.strip(), text, "-c"))
        else:
            wrong.append(f"-c {option}: expected key=value")
    if problems is not None:
        problems += wrong
    elif wrong:
        raise ConfigError(*wrong)
    return settings


class EnvironmentSettings(NamedTuple):
    """What the environment sets, and the ``KAFKA_…`` variables in it that set no key."""

    settings: list[Setting]
    no_keys: list[str]


def from_environment(environment: Mapping[str, str]) -> EnvironmentSettings:
    """The settings of ``KAFKA_…`` variables and of ``CLUSTER_ID``.

    Of ``KAFKA_X`` and ``KAFKA_CFG_X`` the second wins. A ``broker.id`` of -1 asked Kafka 2 to make one up, and is
    none."""
    settings = [
        Setting("oncelog.cluster.id", environment[variable], ENVIRONMENT_ORIGIN + variable)
        for variable in CLUSTER_ID
        if environment.get(variable)
    ]
    no_keys = []
    variables = [name for name in environment if name.startswith(PREFIX) and name not in NOT_KEYS]
    for variable in sorted(variables, key=lambda name: (name.startswith(CFG_PREFIX), name)):
        name, text = environment_key(variable), environment[variable]
        if variable in CLUSTER_ID or (name == "broker.id" and text.strip() == "-1"):
            continue
        if not _is_meant(name, text):
            no_keys.append(variable)
        else:
            settings.append(Setting(name, text, ENVIRONMENT_ORIGIN + variable))
    if not any(setting.name in (_TOLD_HOST, _TOLD_PORT) for setting in settings):
        alone = [setting for setting in settings if setting.name in (_HOST, _PORT)]
        no_keys += [setting.origin.removeprefix(ENVIRONMENT_ORIGIN) for setting in alone]
        settings = [setting for setting in settings if setting not in alone]
    return EnvironmentSettings(settings, no_keys)


def _is_meant(name: str, text: str) -> bool:
    """Whether a variable of that name and value is for the broker: not where it names no key, or one that does nothing
    here and cannot have that value."""
    if name in (_PORT, _TOLD_PORT):
        return text.isdecimal()
    key = key_of(name)
    if key is None or key.in_effect:
        return is_known(name)
    try:
        key.parse(text)
    except ConfigError:
        return False
    return True


def environment_key(variable: str) -> str:
    """The key that a ``KAFKA_…`` variable sets: lower case, ``_`` is ``.``, ``__`` is ``_``, ``___`` is ``-``."""
    prefix = CFG_PREFIX if variable.startswith(CFG_PREFIX) else PREFIX
    return variable.removeprefix(prefix).lower().replace("_", ".").replace("...", "-").replace("..", "_")


def _take_listeners_as_before(chosen: dict[str, Setting]) -> None:
    """Set `listeners`, where they are not, as what was configured for Kafka 2 means them.

    ``host.name``, ``port`` and what is advertised of them count where `advertised.listeners` is not set either (Kafka
    2.8's ``KafkaConfig``). Where the environment sets `advertised.listeners`, the ports it names are listened on
    (confluentinc's image up to 7)."""
    if "listeners" in chosen:
        return
    advertised = chosen.get("advertised.listeners")
    if advertised is not None:
        if advertised.origin.startswith(ENVIRONMENT_ORIGIN):
            try:
                endpoints = [parse_endpoint(text.strip()) for text in advertised.text.split(",")]
            except ValueError:
                return  # it is refused itself
            texts = ",".join(f"{endpoint.listener}://:{endpoint.port}" for endpoint in endpoints)
            chosen["listeners"] = Setting("listeners", texts, advertised.origin)
        return
    old = {name: chosen.pop(name) for name in (_HOST, _PORT, _TOLD_HOST, _TOLD_PORT) if name in chosen}
    if not old:
        return
    text = {name: setting.text.strip() for name, setting in old.items()}
    host, port = text.get(_HOST, ""), text.get(_PORT, DEFAULT_PORT)
    told = f"PLAINTEXT://{text.get(_TOLD_HOST, host)}:{text.get(_TOLD_PORT, port)}"
    listening, *_, telling = (setting.origin for setting in (*old.values(), *old.values()))
    chosen["listeners"] = Setting("listeners", f"PLAINTEXT://{host}:{port}", listening)
    chosen["advertised.listeners"] = Setting("advertised.listeners", told, telling)
