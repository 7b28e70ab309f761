"""The settings of one consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.settings import within

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def session_timeout_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return within(
        context,
        group_id,
        "consumer.session.timeout.ms",
        broker.group_consumer_session_timeout_ms,
        broker.group_consumer_min_session_timeout_ms,
        broker.group_consumer_max_session_timeout_ms,
    )


def heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return within(
        context,
        group_id,
        "consumer.heartbeat.interval.ms",
        broker.group_consumer_heartbeat_interval_ms,
        broker.group_consumer_min_heartbeat_interval_ms,
        broker.group_consumer_max_heartbeat_interval_ms,
    )


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return within(
        context,
        group_id,
        "consumer.assignment.interval.ms",
        broker.group_consumer_assignment_interval_ms,
        broker.group_consumer_min_assignment_interval_ms,
        broker.group_consumer_max_assignment_interval_ms,
    )
