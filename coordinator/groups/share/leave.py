"""Removes members that leave or whose session expired.

Source: Kafka's ``GroupMetadataManager``, ``shareGroupLeave``, ``shareGroupFenceMember``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern import group_epoch
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.member import ShareGroupMember
    from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def leave(shard: GroupShard, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Handle a heartbeat with the leaving epoch. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
    group = shard.group(request.group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
    _fence(shard, group, group.member(request.member_id))
    shard.context.log_info("a member left", group=group.group_id, member=request.member_id)
    return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _fence(shard: GroupShard, group: ShareGroup, member: ShareGroupMember) -> None:
    """Remove the member, and cancel its timer."""
    subscriptions = group.subscriptions.copy()
    subscriptions.replace(member, None)
    shard.commit(
        [
            *group.record_types.member_tombstones(group.group_id, member.member_id),
            *group_epoch.after_leave(shard.context, group, subscriptions, 1),
        ]
    )


def fence_expired(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Remove a member whose session expired, if it is still in the group."""
    group = shard.groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
    if isinstance(group, ShareGroup) and member is not None:
        _fence(shard, group, member)
        shard.context.note_dropped(group_id, member_id, "session expired")
