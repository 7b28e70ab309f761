"""The settings of one consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.settings import own_flag_or, own_or

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def session_timeout_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_consumer_session_timeout_ms
    return own_or(default, context, group_id, "consumer.session.timeout.ms")


def heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_consumer_heartbeat_interval_ms
    return own_or(default, context, group_id, "consumer.heartbeat.interval.ms")


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_consumer_assignment_interval_ms
    return own_or(default, context, group_id, "consumer.assignment.interval.ms")


def offloads_assignor(context: GroupContext, group_id: str) -> bool:
    default = context.settings().group_consumer_assignor_offload_enable
    return own_flag_or(default, context, group_id, "consumer.assignor.offload.enable")
