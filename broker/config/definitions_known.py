"""Kafka's broker keys without effect in oncelog. Setting one gives a warning; DescribeConfigs shows them all.

Their table is loaded when somebody sets one or lists all keys. A key has two lines in the table, its definition and
its documentation::

    NAME TYPE DEFAULT [LEAST..MOST | CHOICE|CHOICE] [per-broker | cluster-wide | internal]
        Documentation.

``null`` is no default, ``""`` an empty one. Internal keys are shown only if they are set."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from oncelog.broker.config.definitions import (
    CLUSTER_WIDE,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    ConfigKey,
    ConfigType,
)

_MODES = {"per-broker": PER_BROKER, "cluster-wide": CLUSTER_WIDE}

# Kafka's authorizer reads these keys; the broker does not define them. They have an effect where there is one.
AUTHORIZER_KEYS = frozenset(("allow.everyone.if.no.acl.found", "super.users"))

# Kafka 4 has removed these keys, but older server.properties files and images still set them.
REMOVED_KEYS = frozenset(
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
# Keys for one SASL mechanism of a listener (``DynamicBrokerConfig.LISTENER_MECHANISM_CONFIGS``).
MECHANISM_KEYS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

# Names with these prefixes end in a name that the user chose (a listener, a configuration provider, a plug-in), belong
# to one vendor's builds, or to ZooKeeper.
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
    """Return Kafka's keys that `BrokerConfig` does not declare, by name."""
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
    """Return the KEY of ``listener.name.LISTENER.[MECHANISM.]KEY``, or None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return next((key for key in MECHANISM_KEYS if base.endswith(key)), base)


def is_known_without_effect(name: str) -> bool:
    """Whether ``name`` is a key without effect here: of Kafka's broker, its authorizer, older versions or plug-ins."""
    if name in AUTHORIZER_KEYS or name in REMOVED_KEYS or name.startswith(PREFIXES):
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
