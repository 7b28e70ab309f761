"""The configuration of members, with the keys of each client."""

from collections.abc import Sequence
from typing import Any, NamedTuple

PYTHON_KINDS = ("confluent-kafka", "kafka-python", "aiokafka")
KINDS = (*PYTHON_KINDS, "java")
NEW_PROTOCOL_KINDS = ("confluent-kafka", "java")  # the clients that support KIP-848
CLIENTS = [*((kind, "classic") for kind in KINDS), *((kind, "consumer") for kind in NEW_PROTOCOL_KINDS)]
"""Every client with each of its protocols."""

# Short timeouts, so that the broker soon removes a member that is gone. With the new protocol the broker sets them, and
# not the client.
CONSUMER_SESSION_MS = 3000
BROKER_PROPERTIES = {
    "offsets.topic.num.partitions": "5",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}

JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Settings(NamedTuple):
    """A member's settings. Only the classic protocol uses `session_ms` and `assignors`.

    Only the new protocol uses `remote_assignor`; with "" the broker chooses.
    """

    protocol: str = "classic"
    assignors: Sequence[str] = ("range",)
    session_ms: int = 10_000
    instance: str = ""
    remote_assignor: str = ""


def static_settings(protocol: str, instance: str) -> Settings:
    """A static member's settings; its session does not expire in a test (the classic protocol only)."""
    return Settings(protocol, session_ms=60_000, instance=instance)


def client_config(
    kind: str, bootstrap: str, group: str, client_id: str, settings: Settings
) -> dict[str, Any]:
    """The configuration of a member with this kind of client."""
    dotted = _dotted(bootstrap, group, client_id, settings)
    if kind == "java":
        if settings.protocol == "classic":
            names = [JAVA_ASSIGNORS[name] for name in settings.assignors]
            dotted["partition.assignment.strategy"] = ",".join(names)
        return {**dotted, "default.api.timeout.ms": 20_000, "fetch.max.wait.ms": 100}
    if kind == "confluent-kafka":
        if settings.protocol == "classic":
            dotted["partition.assignment.strategy"] = ",".join(settings.assignors)
        dotted["fetch.wait.max.ms"] = 100
        return {**dotted, "log_level": 2, "reconnect.backoff.ms": 50}
    assert settings.protocol == "classic", f"{kind} supports only the classic protocol"
    underscored = {key.replace(".", "_"): value for key, value in dotted.items() if key != "group.protocol"}
    underscored |= {"partition_assignment_strategy": list(settings.assignors), "fetch_max_wait_ms": 100}
    underscored["enable_auto_commit"] = False
    if kind == "aiokafka":
        del underscored["reconnect_backoff_max_ms"]
    return underscored


def _dotted(bootstrap: str, group: str, client_id: str, settings: Settings) -> dict[str, Any]:
    """The settings that all clients have, with Kafka's keys."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": settings.protocol,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "retry.backoff.ms": 100,
        "reconnect.backoff.max.ms": 500,
    }
    if settings.instance:
        config["group.instance.id"] = settings.instance
    if settings.protocol == "classic":
        config["session.timeout.ms"] = settings.session_ms
        config["heartbeat.interval.ms"] = min(200, settings.session_ms // 5)
    elif settings.remote_assignor:
        config["group.remote.assignor"] = settings.remote_assignor
    return config
