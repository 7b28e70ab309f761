"""The broker's keys for several nodes and their replicas (Kafka: ``KRaftConfigs``, ``ReplicationConfigs``)."""

from __future__ import annotations

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    STRING,
    KeyCollector,
    key,
)


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
    initial_broker_registration_timeout_ms: int = key(
        INT, 60_000, "Milliseconds that a broker's first registration may take at its start."
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


class ReplicationKeys(metaclass=KeyCollector, of_several_nodes=True):
    """Keys for partitions with several replicas. One node has no use for them."""

    __slots__ = ()

    replica_lag_time_max_ms: int = key(
        LONG,
        30_000,
        "Milliseconds after which a follower that has not caught up is no longer in sync.",
        importance=HIGH,
    )
    replica_fetch_backoff_ms: int = key(
        INT, 1_000, "Milliseconds that a follower waits after a fetch that failed.", at_least=0
    )
    replica_fetch_max_bytes: int = key(
        INT, 1024 * 1024, "Bytes of one partition that a follower fetches at once.", at_least=0
    )
    replica_fetch_min_bytes: int = key(INT, 1, "Bytes that a follower's fetch waits for.", importance=HIGH)
    replica_fetch_response_max_bytes: int = key(
        INT, 10 * 1024 * 1024, "Bytes of all partitions that a follower fetches at once.", at_least=0
    )
    replica_fetch_wait_max_ms: int = key(
        INT, 500, "The most milliseconds that a follower's fetch waits.", importance=HIGH
    )
    leader_replication_throttled_rate: int | None = key(
        LONG,
        None,
        "Bytes in a second that throttled replicas fetch from this broker.",
        at_least=0,
        update=CLUSTER_WIDE,
        internal=True,
    )
    follower_replication_throttled_rate: int | None = key(
        LONG,
        None,
        "Bytes in a second that throttled replicas of this broker fetch.",
        at_least=0,
        update=CLUSTER_WIDE,
        internal=True,
    )
    replication_quota_window_num: int = key(
        INT, 11, "Samples that are kept of replication.", at_least=1, importance=LOW
    )
    replication_quota_window_size_seconds: int = key(
        INT, 1, "Seconds of a sample of replication.", at_least=1, importance=LOW
    )
    replica_selector_class: str | None = key(
        STRING, None, "The class that chooses the replica that a consumer reads from."
    )
