"""Members that are dropped: they left, or were silent for too long."""

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
    """A session is over without a sign of life of its member, or a member id was given out and not used."""
    if member_id in group.pending_joins:
        group.remove(member_id)
    else:
        member = group.members.get(member_id)
        if member is None or member.is_kept_alive:
            return
        remove(group, member)
        shard.context.log_info(
            "a member is dropped", group=group.group_id, member=member_id, reason="its session is over"
        )
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            rebalance.prepare_or_complete(shard, group, f"the session of {member_id} is over")
            return
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined():
        rebalance.complete(shard, group)


def remove(group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Drop a member. If it is alive after all and waits for an answer, it shall come again as a new one."""
    group.complete_join(member, responses.join_error(ErrorCode.UNKNOWN_MEMBER_ID))
    responses.complete_sync(member, responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
