"""The broker's keys for share groups and streams groups (Kafka: ``GroupCoordinatorConfig``, ``ShareGroupConfig``).

There are no such groups yet, but clients can configure them: the limits are in effect then, and the other keys give
the defaults that DescribeConfigs shows."""

from __future__ import annotations

from typing import Any

from oncelog.broker.config.definitions import CLUSTER_WIDE, INT, KeyCollector, key


def _default(
    default: int, documentation: str, least: int = 1, most: int | None = None, **options: Any
) -> Any:
    """Declare the default of a group's key."""
    return key(INT, default, documentation, at_least=least, at_most=most, in_effect=False, **options)


def _min_limit(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The smallest value that a group may set for the key without min{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


def _max_limit(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The largest value that a group may set for the key without max{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


class ShareGroupKeys(metaclass=KeyCollector):
    """Keys for share groups."""

    __slots__ = ()

    group_share_session_timeout_ms: int = _default(
        45_000, "Milliseconds without a heartbeat after which a member is removed."
    )
    group_share_min_session_timeout_ms: int = _min_limit(45_000)
    group_share_max_session_timeout_ms: int = _max_limit(60_000)
    group_share_heartbeat_interval_ms: int = _default(
        5_000, "Milliseconds between two heartbeats of a member."
    )
    group_share_min_heartbeat_interval_ms: int = _min_limit(5_000)
    group_share_max_heartbeat_interval_ms: int = _max_limit(15_000)
    group_share_assignment_interval_ms: int = _default(
        1_000, "Milliseconds between two new assignments of a group.", 0, update=CLUSTER_WIDE
    )
    group_share_min_assignment_interval_ms: int = _min_limit(0, 0)
    group_share_max_assignment_interval_ms: int = _max_limit(15_000, 0)
    group_share_record_lock_duration_ms: int = _default(
        30_000,
        "Milliseconds after which a record that no consumer has acknowledged is delivered again.",
        1_000,
        3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = _min_limit(15_000, 1_000, 30_000)
    group_share_max_record_lock_duration_ms: int = _max_limit(60_000, 30_000, 3_600_000)
    group_share_delivery_count_limit: int = _default(5, "The most deliveries of a record.", 2, 10)
    group_share_min_delivery_count_limit: int = _min_limit(2, 2, 5, unit="")
    group_share_max_delivery_count_limit: int = _max_limit(10, 5, 25, unit="")
    group_share_partition_max_record_locks: int = _default(
        2_000, "The most records of a partition that consumers hold at the same time.", 100, 10_000
    )
    group_share_min_partition_max_record_locks: int = _min_limit(100, 100, 2_000, unit="")
    group_share_max_partition_max_record_locks: int = _max_limit(4_000, 2_000, 10_000, unit="")


class StreamsGroupKeys(metaclass=KeyCollector):
    """Keys for streams groups."""

    __slots__ = ()

    group_streams_session_timeout_ms: int = _default(
        45_000, "Milliseconds without a heartbeat after which a member is removed."
    )
    group_streams_min_session_timeout_ms: int = _min_limit(45_000)
    group_streams_max_session_timeout_ms: int = _max_limit(60_000)
    group_streams_heartbeat_interval_ms: int = _default(
        5_000, "Milliseconds between two heartbeats of a member."
    )
    group_streams_min_heartbeat_interval_ms: int = _min_limit(5_000)
    group_streams_max_heartbeat_interval_ms: int = _max_limit(15_000)
    group_streams_assignment_interval_ms: int = _default(
        1_000, "Milliseconds between two new assignments of a group.", 0, update=CLUSTER_WIDE
    )
    group_streams_min_assignment_interval_ms: int = _min_limit(0, 0)
    group_streams_max_assignment_interval_ms: int = _max_limit(15_000, 0)
    group_streams_num_standby_replicas: int = _default(0, "Standby replicas of each task.", 0)
    group_streams_max_standby_replicas: int = _max_limit(2, 0, unit="")
    group_streams_initial_rebalance_delay_ms: int = _default(
        3_000, "Milliseconds that an empty group waits for more members after the first one.", 0
    )
