"""Checks of a broker's configuration that the keys' types and limits do not cover, such as keys that contradict each
other.

Rules and messages are those of ``KafkaConfig.validateValues`` and ``GroupCoordinatorConfig`` of Kafka 4.3.1, and our
own for what oncelog does not support."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.config.broker_config import BrokerConfig

ALL_LOG_DIRS = "*"
"""In ``cordoned.log.dirs``."""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# Keys that contradict each other, and the message. The first key is the one to blame.
Contradiction = tuple[tuple[str, ...], str]


def contradictions(config: BrokerConfig) -> Iterator[Contradiction]:
    """Yield all contradictions of a configuration. Keys whose text could not be parsed have their defaults."""
    yield from _node(config)
    yield from _logs(config)
    yield from _network(config)
    for kind in ("consumer", "share", "streams"):
        yield from _group_limits(config, kind)
    yield from _share_groups(config)
    standby = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if _number(config, standby[0]) > _number(config, standby[1]):
        yield standby, f"{standby[0]} must be less than or equal to {standby[1]}"


def connection_limits(text: str) -> dict[str, int]:
    """Return the limit of each address in ``max.connections.per.ip.overrides``. Malformed pairs are left out."""
    return {address: int(count) for _, address, count in _connection_pairs(text) if address and count}


def _connection_pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each ``HOST:COUNT`` with its host and its count. A count that is no number is yielded as an empty text."""
    for pair in filter(None, map(str.strip, text.split(","))):
        address, _, count = pair.rpartition(":")
        yield pair, address, count if count.isascii() and count.isdecimal() else ""


def _node(config: BrokerConfig) -> Iterator[Contradiction]:
    ids = ("broker.id", "node.id")
    if config.node_id != config.broker_id:
        yield ids, "You must set `node.id` to the same value as `broker.id`."
    elif config.node_id < 0:
        yield ids, f"Invalid value {config.node_id} for configuration node.id: Value must be at least 0"
    if "broker" not in config.process_roles:
        yield ("process.roles",), "process.roles must have broker in it, that is what oncelog is"
    yield from _authorizer(config)


def super_users(text: str) -> frozenset[str]:
    """Return the principals of ``super.users``. Malformed ones are left out."""
    return frozenset(user for user in _super_users(text) if ":" in user)


def _super_users(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(";")))


def _authorizer(config: BrokerConfig) -> Iterator[Contradiction]:
    name = config.authorizer_class_name
    if not name:
        return
    # An error, not a warning: whoever sets an authorizer relies on it to refuse requests.
    if name != STANDARD_AUTHORIZER:
        yield (
            ("authorizer.class.name",),
            f"authorizer.class.name={name}: oncelog has Kafka's own authorizer only: "
            f"use {STANDARD_AUTHORIZER}, or leave it empty",
        )
    for user in _super_users(config.texts.get("super.users", "")):
        if ":" not in user or ",User:" in user.replace(" ", ""):
            name = user.rpartition(":")[2]
            yield (
                ("super.users",),
                f"Invalid value {user} for configuration super.users: Expected TYPE:NAME, such as User:{name}; "
                "several are separated by semicolons",
            )


def _logs(config: BrokerConfig) -> Iterator[Contradiction]:
    for name, value, least in (
        ("log.roll.ms", config.log_roll_ms, 1),
        ("log.roll.jitter.ms", config.log_roll_jitter_ms, 0),
    ):
        if value is not None and value < least:
            yield (name,), f"Invalid value {value} for configuration {name}: Value must be at least {least}"
    retention = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    for name in retention:
        if config.value(name) == 0 and config.topic_defaults().retention_ms == 0:
            yield (
                (name, *retention),
                f"Invalid value 0 for configuration {name}: it must be -1 (for ever), or at least 1",
            )
    for name in ("log.dirs", "log.dir"):
        directories = config.value(name)
        if isinstance(directories, tuple) and len(directories) != 1:
            yield (name,), f"{name} must name one directory; oncelog keeps one: {','.join(directories)!r}"
    cordoned = config.cordoned_log_dirs
    unknown = [one for one in cordoned if one not in (ALL_LOG_DIRS, config.data_dir)]
    if ALL_LOG_DIRS in cordoned and len(cordoned) > 1:
        yield (
            ("cordoned.log.dirs",),
            f"When cordoned.log.dirs is set to {ALL_LOG_DIRS}, it must not contain other values",
        )
    elif unknown:
        yield (
            ("cordoned.log.dirs",),
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
            + ", ".join(unknown),
        )
    lags = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    policy = config.topic_defaults()
    if policy.min_compaction_lag_ms > policy.max_compaction_lag_ms:
        yield lags, "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms"


def _network(config: BrokerConfig) -> Iterator[Contradiction]:
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        sizes = ("queued.max.request.bytes", "socket.request.max.bytes")
        yield sizes, "queued.max.request.bytes must be at least socket.request.max.bytes, or -1"
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    for pair, address, count in _connection_pairs(config.max_connections_per_ip_overrides):
        if not address or not count:
            yield (overrides,), f"Invalid value {pair} for configuration {overrides}: Expected HOST:COUNT"
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        yield (limit, overrides), f"{limit} can be 0 only where {overrides} is set"


def _group_limits(config: BrokerConfig, kind: str) -> Iterator[Contradiction]:
    """Check the limits of one kind of groups, in the order and the words of ``GroupCoordinatorConfig``."""
    prefix = f"group.{kind}."
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        name, least, most = (f"{prefix}{limit}{what}" for limit in ("", "min.", "max."))
        if _number(config, most) < _number(config, least):
            yield (most, least), f"{most} must be greater than or equal to {least}"
        elif _number(config, name) < _number(config, least):
            yield (name, least), f"{name} must be greater than or equal to {least}"
        elif _number(config, name) > _number(config, most):
            yield (name, most), f"{name} must be less than or equal to {most}"
    heartbeat, session = f"{prefix}heartbeat.interval.ms", f"{prefix}session.timeout.ms"
    if _number(config, heartbeat) >= _number(config, session):
        yield (heartbeat, session), f"{heartbeat} must be less than {session}"


def _share_groups(config: BrokerConfig) -> Iterator[Contradiction]:
    """Check the other limits of share groups, as ``ShareGroupConfig`` and ``GroupCoordinatorConfig`` do."""
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        name, least, most = (f"group.share.{limit}{what}" for limit in ("", "min.", "max."))
        for more, less in ((most, name), (name, least)):
            if _number(config, more) < _number(config, less):
                yield (more, less), f"{more} must be greater than or equal to {less}"
    sessions, size, assignors = (
        "group.share.max.share.sessions",
        "group.share.max.size",
        "group.share.assignors",
    )
    if _number(config, sessions) < _number(config, size):
        yield (sessions, size), f"{sessions} must be greater than or equal to {size}"
    names = config.value(assignors) if assignors in config.texts else None
    if isinstance(names, tuple) and len(names) != 1:
        yield (assignors,), f"{assignors} must contain exactly one assignor, but found {len(names)}"


def _number(config: BrokerConfig, name: str) -> int:
    value = config.value(name)
    assert isinstance(value, int)
    return value
