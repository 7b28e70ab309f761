"""`BrokerOptions`: the checked options of a controlled broker. They can be pickled, for a child process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import PLAINTEXT, resolve_listeners
from oncelog.broker.config.options import PORT_MAX
from oncelog.broker.control.acl_options import Acl, acl_bindings
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.emulation.release import emulated
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.security.sasl.users import Users
from oncelog.broker.security.user_options import check_logins, security_config
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled

REQUESTS_KEPT = 1000
"""How many requests of each API the journal keeps by default."""
SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
"""How many bytes a snapshot may unpack to by default; it is unpacked in memory."""
MEMORY_DATA_DIR = "/data"
"""The data directory of a broker that keeps its data in memory."""

KIT_CONFIG = {
    # A first group in a test would wait three seconds for further members.
    "group.initial.rebalance.delay.ms": "0",
    # One partition each: a coordinator is loaded, and its topic made, with one log instead of fifty.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # The first member of a share group gets partitions with its second heartbeat, by default after five seconds.
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "50",
    "group.share.min.heartbeat.interval.ms": "50",
}
"""Defaults of the test kit that differ from Kafka's; `BrokerOptions.config` overrides them."""


@dataclass(frozen=True)
class TopicOptions:
    """A topic that is created at the start."""

    partitions: int = 1
    """-1: as many as the broker has by default."""
    config: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1
    """-1: the broker's default."""

    def creatable(self, name: str) -> CreatableTopic:
        """Return the row of CreateTopics."""
        configs = [CreatableTopicConfig(key, value) for key, value in self.config.items()]
        return CreatableTopic(name, self.partitions, self.replication_factor, configs=configs)


@dataclass(frozen=True)
class BrokerOptions:
    """See `oncelog.Broker`, which documents each. Made by `checked_options`."""

    topics: Mapping[str, TopicOptions] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """There may be passwords in it."""
    data_dir: str | None = None
    port: int = 0
    seed: int = 0
    requests_kept: int = REQUESTS_KEPT
    version: str | None = None
    from_snapshot: str | bytes | None = None
    """The path of a snapshot's file, or its content."""
    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX
    """How many bytes it may unpack to."""
    origins: Mapping[str, str] | None = None
    """Key -> the place that sets it (a file, an option, a variable). If this is set, ``config`` is the whole
    configuration, as the command line's is: without the kit's defaults, with ``log.dirs`` and ``listeners``."""
    host_name: str = "localhost"
    """The advertised host of a listener on every address."""
    users: Users = field(default_factory=lambda: Users({}))
    acls: tuple[AclBinding, ...] = ()
    """ACLs that are created at the start if they are missing."""
    implied: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The configuration that ``users``, ``acls``, ``tls`` and ``oauth`` of `oncelog.Broker` imply where `config` says
    nothing. There is a private key in it."""
    is_durable: bool = True
    """Whether data on a disk outlives the process; if not, nothing waits for the disk."""

    def controlled(self) -> Controlled:
        """Return a broker with these options."""
        from oncelog.broker.control.controlled_broker import ControlledBroker

        return ControlledBroker(self)

    def broker_config(self, of_snapshot: Mapping[str, str] | None = None) -> BrokerConfig:
        """Return the configuration of the broker. ``of_snapshot`` holds where `config` and `implied` say nothing.
        Raises ConfigError.
        """
        if self.origins is not None:
            return BrokerConfig({**(of_snapshot or {}), **self.config}, self.origins)
        texts = {
            **KIT_CONFIG,
            "listeners": f"{PLAINTEXT}://127.0.0.1:{self.port}",
            **(of_snapshot or {}),
            **self.implied,
            **self.config,
            "log.dirs": self.data_dir or MEMORY_DATA_DIR,
        }
        return BrokerConfig(
            texts, {**dict.fromkeys(of_snapshot or (), "snapshot"), **dict.fromkeys(self.config, "config")}
        )


def checked_options(
    *,
    topics: Mapping[str, object] | Iterable[str] = (),
    config: Mapping[str, object] | None = None,
    data_dir: str | None = None,
    port: int = 0,
    seed: int = 0,
    requests_kept: int = REQUESTS_KEPT,
    version: str | None = None,
    from_snapshot: str | bytes | None = None,
    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX,
    users: Mapping[str, str] | None = None,
    acls: Iterable[Acl | Mapping[str, object]] | None = None,
    tls: Mapping[str, str] | None = None,
    oauth: Mapping[str, str] | None = None,
    has_data: bool = True,
) -> BrokerOptions:
    """Return the options. ``tls``: the keys ``ssl.`` for listeners with TLS; None for listeners without. ``oauth``: the
    keys ``sasl.oauthbearer.`` for log-ins by tokens; None without. ``has_data``: False for a proxy's, which has no data
    directory.

    Raises InvalidArgumentError for the first invalid argument.
    """
    if not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise InvalidArgumentError(f"port={port!r}: expected 0 (a free one) to {PORT_MAX}")
    if not isinstance(seed, int):
        raise InvalidArgumentError(f"seed={seed!r}: expected a number")
    if not isinstance(requests_kept, int) or requests_kept < 0:
        raise InvalidArgumentError(f"requests_kept={requests_kept!r}: expected 0 (none) or more")
    if not isinstance(snapshot_bytes_max, int) or snapshot_bytes_max <= 0:
        raise InvalidArgumentError(f"snapshot_bytes_max={snapshot_bytes_max!r}: expected a number of bytes")
    if version is not None:
        if not isinstance(version, str):
            raise InvalidArgumentError(f'version={version!r}: expected a text, such as "3.9"')
        try:
            emulated(version)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
    texts = config_texts(config or {})
    if "oncelog.nodes" in texts:
        raise InvalidArgumentError("config: nodes= says how many nodes there are, not oncelog.nodes")
    for key in ("log.dirs", "log.dir"):
        if key in texts and has_data:
            raise InvalidArgumentError(f"config {key}: use data_dir= to keep the data on a disk")
    if port and "listeners" in texts:
        raise InvalidArgumentError("port= and config listeners exclude each other")
    options = BrokerOptions(
        topic_options(topics),
        texts,
        data_dir,
        port,
        seed,
        requests_kept,
        version,
        from_snapshot,
        snapshot_bytes_max,
        users=_checked_users(users or {}),
        acls=acl_bindings(acls or ()),
        implied={
            **security_config(
                port, has_users=bool(users), has_tls=tls is not None, has_tokens=oauth is not None
            ),
            **(tls or {}),
            **(oauth or {}),
            **({} if acls is None else {"authorizer.class.name": STANDARD_AUTHORIZER}),
        },
    )
    try:
        broker_config = options.broker_config()
        for given, option in ((options.users, "users="), (oauth, "oauth=True")):
            if given:
                check_logins(option, resolve_listeners(broker_config, lambda: options.host_name)[0])
    except ConfigError as error:
        raise InvalidArgumentError(str(error)) from None
    return options


def config_texts(config: Mapping[str, object]) -> dict[str, str]:
    """Return configuration values as Kafka writes them: ``True`` is ``true``, a list is joined by commas.

    Raises InvalidArgumentError for a value of another type.
    """
    if not isinstance(config, Mapping):
        raise InvalidArgumentError(
            f"config={config!r}: expected a dictionary, such as {{'num.partitions': 3}}"
        )
    return {key: _config_text(key, value) for key, value in config.items()}


def _config_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(_config_text(key, one) for one in value)
    raise InvalidArgumentError(
        f"config {key}={value!r}: expected text, a number, True or False, or a list of these"
    )


def topic_options(topics: Mapping[str, object] | Iterable[str]) -> dict[str, TopicOptions]:
    """Return topics by name, as `oncelog.Broker` takes them. Raises InvalidArgumentError."""
    if isinstance(topics, str):
        raise InvalidArgumentError(f"topics={topics!r}: expected a list of names, or {{name: partitions}}")
    if not isinstance(topics, Mapping):
        return {name: TopicOptions() for name in topics}
    return {name: _topic(name, given) for name, given in topics.items()}


def _topic(name: str, given: object) -> TopicOptions:
    if isinstance(given, TopicOptions):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return TopicOptions(given)
    if isinstance(given, Mapping) and given.keys() <= {"partitions", "config"}:
        partitions = given.get("partitions", 1)
        config = given.get("config", {})
        if isinstance(partitions, int) and isinstance(config, Mapping):
            return TopicOptions(partitions, config_texts(config))
    raise InvalidArgumentError(
        f"topic {name}: {given!r}: expected a number of partitions, or "
        "{'partitions': 3, 'config': {'cleanup.policy': 'compact'}}"
    )


def _checked_users(given: Mapping[str, str]) -> Users:
    """Return users. Raises InvalidArgumentError, without a password."""
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            "users=: expected a dictionary of passwords, such as {'app': 'app-secret'}"
        )
    try:
        return Users(given)
    except ValueError as error:
        raise InvalidArgumentError(f"users=: {error}") from None
