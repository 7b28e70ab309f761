"""The settings of one share group."""

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
        "share.session.timeout.ms",
        broker.group_share_session_timeout_ms,
        broker.group_share_min_session_timeout_ms,
        broker.group_share_max_session_timeout_ms,
    )


def heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return within(
        context,
        group_id,
        "share.heartbeat.interval.ms",
        broker.group_share_heartbeat_interval_ms,
        broker.group_share_min_heartbeat_interval_ms,
        broker.group_share_max_heartbeat_interval_ms,
    )


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    broker = context.settings()
    return within(
        context,
        group_id,
        "share.assignment.interval.ms",
        broker.group_share_assignment_interval_ms,
        broker.group_share_min_assignment_interval_ms,
        broker.group_share_max_assignment_interval_ms,
    )
