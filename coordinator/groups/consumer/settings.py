"""The settings of one group: its own dynamic configuration, clamped to the broker's limits, else the broker's setting.

Values are checked when they are set, but the broker's limits may change afterwards. Source: Kafka's ``GroupConfig``,
``GroupConfigManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def _within(context: GroupContext, group_id: str, name: str, default: int, low: int, high: int) -> int:
    text = context.overrides(group_id).get(name)
    return default if text is None else max(low, min(high, int(text)))


def session_timeout_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return _within(
        context,
        group_id,
        "consumer.session.timeout.ms",
        broker.group_consumer_session_timeout_ms,
        broker.group_consumer_min_session_timeout_ms,
        broker.group_consumer_max_session_timeout_ms,
    )


def heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return _within(
        context,
        group_id,
        "consumer.heartbeat.interval.ms",
        broker.group_consumer_heartbeat_interval_ms,
        broker.group_consumer_min_heartbeat_interval_ms,
        broker.group_consumer_max_heartbeat_interval_ms,
    )


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return _within(
        context,
        group_id,
        "consumer.assignment.interval.ms",
        broker.group_consumer_assignment_interval_ms,
        broker.group_consumer_min_assignment_interval_ms,
        broker.group_consumer_max_assignment_interval_ms,
    )
