"""Removes members that left or whose session expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import rebalance, responses
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.shard import GroupShard


def expire(shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
    """The session of a member expired, or a member id that was given out has not joined in time."""
    if member_id in group.pending_joins:
        group.remove(member_id)
        reason = "did not join with its new member id in time"
        shard.context.timer_event("member dropped", group=group.group_id, member=member_id, reason=reason)
    else:
        member = group.members.get(member_id)
        if member is None or member.is_kept_alive:
            return
        remove(group, member)
        shard.context.note_dropped(group.group_id, member_id, "session expired")
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            rebalance.prepare_or_complete(shard, group, f"the session of {member_id} expired")
            return
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined():
        rebalance.complete(shard, group)


def remove(group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Remove a member. A request of it that waits gets UNKNOWN_MEMBER_ID: if it is alive, it joins as a new member."""
    group.complete_join(member, responses.join_error(ErrorCode.UNKNOWN_MEMBER_ID))
    responses.complete_sync(member, responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
