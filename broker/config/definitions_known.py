"""Kafka's broker keys that do nothing in oncelog, so that setting one is a warning, and DescribeConfigs shows it.

Their table is loaded when somebody sets one, or asks for all. A key has two lines there, its facts and its
documentation::

    NAME TYPE DEFAULT [LEAST..MOST | CHOICE|CHOICE] [per-broker | cluster-wide | internal]
        What it rules.

``null`` is no default, ``""`` an empty one. Internal keys, and those that Kafka has as dynamic ones only, are shown
where they are set."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import (
    CLUSTER_WIDE,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    ConfigKey,
    ConfigType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = {"per-broker": PER_BROKER, "cluster-wide": CLUSTER_WIDE}

# Keys of Kafka's authorizer, which reads them itself.
OF_THE_AUTHORIZER = frozenset(("allow.everyone.if.no.acl.found", "super.users"))

# What Kafka up to 3.x had, and its 4.x no longer knows; older server.properties files and images still set
# them.
OF_OLDER_KAFKA = frozenset(
    (
        "advertised.host.name",
        "advertised.port",
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "host.name",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    )
)

LISTENER_PREFIX = "listener.name."
# What can be set for one mechanism of a listener (``DynamicBrokerConfig.LISTENER_MECHANISM_CONFIGS``).
OF_A_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

# Keys whose names end in what a user chose: per listener, per configuration provider, for plug-ins, for one
# vendor's builds; and those of ZooKeeper and of passwords that were kept there.
PREFIXES = (
    "config.providers.",
    "confluent.",
    LISTENER_PREFIX,
    "password.encoder.",
    "rlmm.config.",
    "rsm.config.",
    "zookeeper.",
)


@functools.cache
def keys_without_effect() -> Mapping[str, ConfigKey]:
    """Kafka's keys that are not declared in `BrokerConfig`, by name."""
    from oncelog.broker.config import known_keys_node, known_keys_security

    lines = [
        line
        for table in (known_keys_node.TABLE, known_keys_security.TABLE)
        for line in table.splitlines()
        if line and not line.startswith("#")
    ]
    found = (_key(*pair) for pair in zip(lines[::2], lines[1::2], strict=True))
    return {key.name: key for key in found}


def listener_base(name: str) -> str | None:
    """The key that ``listener.name.LISTENER.[MECHANISM.]KEY`` sets for one listener; None for another name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return next((key for key in OF_A_MECHANISM if base.endswith(key)), base)


def is_known(name: str) -> bool:
    """Whether `name` is a key of Kafka's that has no effect here."""
    if name in OF_THE_AUTHORIZER or name in OF_OLDER_KAFKA or name.startswith(PREFIXES):
        return True
    return name in keys_without_effect()


def _key(facts: str, documentation: str) -> ConfigKey:
    name, type_name, text, *more = facts.split()
    limits = next((word for word in more if ".." in word), "..")
    least, most = (
        float(limit) if "." in limit else int(limit) if limit else None for limit in limits.split("..")
    )
    key = ConfigKey(
        ConfigType[type_name.upper()],
        None,
        documentation.strip(),
        MEDIUM,
        next((_MODES[word] for word in more if word in _MODES), READ_ONLY),
        least,
        most,
        next((tuple(word.split("|")) for word in more if "|" in word), ()),
        check=None,
        synonyms=(),
        internal="internal" in more,
        in_effect=False,
    )
    key.name, key.attribute = name, name.replace(".", "_")
    if text != "null":
        key.default = key.kafka_default = key.parse("" if text == '""' else text)
    return key
