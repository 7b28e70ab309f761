"""The broker's keys for replicas: followers' fetches, the ISR, the choice of a replica to read (Kafka:
``ReplicationConfigs``).
"""

from __future__ import annotations

from oncelog.broker.config.definitions import HIGH, INT, LONG, STRING, KeyCollector, key


class ReplicationKeys(metaclass=KeyCollector):
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
    replica_selector_class: str | None = key(
        STRING, None, "The class that chooses the replica that a consumer reads from."
    )
