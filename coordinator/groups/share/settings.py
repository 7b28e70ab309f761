"""The settings of one share group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.settings import own_flag_or, own_or

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def session_timeout_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_share_session_timeout_ms
    return own_or(default, context, group_id, "share.session.timeout.ms")


def heartbeat_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_share_heartbeat_interval_ms
    return own_or(default, context, group_id, "share.heartbeat.interval.ms")


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    default = context.settings().group_share_assignment_interval_ms
    return own_or(default, context, group_id, "share.assignment.interval.ms")


def offloads_assignor(context: GroupContext, group_id: str) -> bool:
    default = context.settings().group_share_assignor_offload_enable
    return own_flag_or(default, context, group_id, "share.assignor.offload.enable")
