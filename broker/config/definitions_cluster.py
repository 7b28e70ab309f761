"""The broker's keys for a cluster of several nodes (Kafka: ``KRaftConfigs``, ``ReplicationConfigs``)."""

from __future__ import annotations

from oncelog.broker.config.definitions import BOOLEAN, HIGH, INT, LONG, KeyCollector, key


class ClusterKeys(metaclass=KeyCollector, of_several_nodes=True):
    """Keys for how nodes and their controller find each other, and for elections. One node has no use for them."""

    __slots__ = ()

    auto_leader_rebalance_enable: bool = key(
        BOOLEAN, True, "Whether the controller makes preferred replicas leaders again.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = key(
        LONG,
        300,
        "Seconds between two searches for partitions whose leader is not the preferred replica.",
        importance=HIGH,
        at_least=1,
    )
    broker_heartbeat_interval_ms: int = key(
        INT, 2_000, "Milliseconds between two heartbeats of a broker to the controller."
    )
    broker_session_timeout_ms: int = key(
        INT, 9_000, "Milliseconds without a heartbeat after which the controller fences a broker."
    )
    request_timeout_ms: int = key(
        INT, 30_000, "Milliseconds that a request to another node may take.", importance=HIGH
    )
    unclean_leader_election_interval_ms: int = key(
        LONG,
        300_000,
        "Milliseconds between two searches for partitions that need an unclean leader.",
        at_least=1,
        internal=True,
    )
