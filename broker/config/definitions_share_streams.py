"""The broker's keys for what a share or a streams group may set (Kafka: ``GroupCoordinatorConfig``,
``ShareGroupConfig``).

There are no such groups yet, but they can be configured: the limits hold for that, and the rest is what shows where a
group sets nothing."""

from __future__ import annotations

from typing import Any

from oncelog.broker.config.definitions import CLUSTER_WIDE, INT, KeyCollector, key


def _plain(default: int, documentation: str, least: int = 1, most: int | None = None, **options: Any) -> Any:
    """What a group has that sets nothing."""
    return key(INT, default, documentation, at_least=least, at_most=most, in_effect=False, **options)


def _least(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The least that a group may set for it{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


def _most(default: int, least: int = 1, most: int | None = None, unit: str = ", in milliseconds") -> Any:
    text = f"The most that a group may set for it{unit}."
    return key(INT, default, text, at_least=least, at_most=most)


class ShareGroupKeys(metaclass=KeyCollector):
    """Of share groups."""

    __slots__ = ()

    group_share_session_timeout_ms: int = _plain(
        45_000, "Milliseconds of silence after which a member is dropped."
    )
    group_share_min_session_timeout_ms: int = _least(45_000)
    group_share_max_session_timeout_ms: int = _most(60_000)
    group_share_heartbeat_interval_ms: int = _plain(5_000, "Milliseconds between two heartbeats of a member.")
    group_share_min_heartbeat_interval_ms: int = _least(5_000)
    group_share_max_heartbeat_interval_ms: int = _most(15_000)
    group_share_assignment_interval_ms: int = _plain(
        1_000, "Milliseconds between two new assignments of a group.", 0, update=CLUSTER_WIDE
    )
    group_share_min_assignment_interval_ms: int = _least(0, 0)
    group_share_max_assignment_interval_ms: int = _most(15_000, 0)
    group_share_record_lock_duration_ms: int = _plain(
        30_000, "Milliseconds that a consumer has for a record.", 1_000, 3_600_000
    )
    group_share_min_record_lock_duration_ms: int = _least(15_000, 1_000, 30_000)
    group_share_max_record_lock_duration_ms: int = _most(60_000, 30_000, 3_600_000)
    group_share_delivery_count_limit: int = _plain(5, "How often a record is delivered at most.", 2, 10)
    group_share_min_delivery_count_limit: int = _least(2, 2, 5, unit="")
    group_share_max_delivery_count_limit: int = _most(10, 5, 25, unit="")
    group_share_partition_max_record_locks: int = _plain(
        2_000, "Records of a partition that consumers have at once at most.", 100, 10_000
    )
    group_share_min_partition_max_record_locks: int = _least(100, 100, 2_000, unit="")
    group_share_max_partition_max_record_locks: int = _most(4_000, 2_000, 10_000, unit="")


class StreamsGroupKeys(metaclass=KeyCollector):
    """Of streams groups."""

    __slots__ = ()

    group_streams_session_timeout_ms: int = _plain(
        45_000, "Milliseconds of silence after which a member is dropped."
    )
    group_streams_min_session_timeout_ms: int = _least(45_000)
    group_streams_max_session_timeout_ms: int = _most(60_000)
    group_streams_heartbeat_interval_ms: int = _plain(
        5_000, "Milliseconds between two heartbeats of a member."
    )
    group_streams_min_heartbeat_interval_ms: int = _least(5_000)
    group_streams_max_heartbeat_interval_ms: int = _most(15_000)
    group_streams_assignment_interval_ms: int = _plain(
        1_000, "Milliseconds between two new assignments of a group.", 0, update=CLUSTER_WIDE
    )
    group_streams_min_assignment_interval_ms: int = _least(0, 0)
    group_streams_max_assignment_interval_ms: int = _most(15_000, 0)
    group_streams_num_standby_replicas: int = _plain(0, "Standby replicas of each task.", 0)
    group_streams_max_standby_replicas: int = _most(2, 0, unit="")
    group_streams_initial_rebalance_delay_ms: int = _plain(
        3_000, "Milliseconds that an empty group waits for more members to join.", 0
    )
