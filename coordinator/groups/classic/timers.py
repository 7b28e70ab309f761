"""The timers of a classic group: sessions of its members, join phase, sync phase.

An action may raise KafkaError if the group is now empty and that could not be stored. It may then be called again, as
Kafka's timers do; that changes nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import removal
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.groups.group_deadline import GroupDeadline

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.shard import GroupShard

SESSION, JOIN, SYNC = "classic-session", "classic-join", "classic-sync"


def session_key(shard: GroupShard, group_id: str, member_id: str) -> Hashable:
    return GroupDeadline(shard.partition, group_id, SESSION, member_id)


def join_key(shard: GroupShard, group_id: str) -> Hashable:
    return GroupDeadline(shard.partition, group_id, JOIN)


def sync_key(shard: GroupShard, group_id: str) -> Hashable:
    return GroupDeadline(shard.partition, group_id, SYNC)


def renew_session(shard: GroupShard, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Restart the member's session timeout."""
    set_session(shard, group, member.member_id, member.session_timeout_ms)


def set_session(shard: GroupShard, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
    shard.context.deadlines.set(
        session_key(shard, group.group_id, member_id),
        timeout_ms,
        lambda: removal.expire(shard, group, member_id),
    )


def cancel_session(shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
    shard.context.deadlines.cancel(session_key(shard, group.group_id, member_id))


def set_join(shard: GroupShard, group: ClassicGroup, delay_ms: int, action: Callable[[], None]) -> None:
    shard.context.deadlines.set(join_key(shard, group.group_id), delay_ms, action)


def cancel_join(shard: GroupShard, group: ClassicGroup) -> None:
    shard.context.deadlines.cancel(join_key(shard, group.group_id))


def set_sync(shard: GroupShard, group: ClassicGroup, delay_ms: int, action: Callable[[], None]) -> None:
    shard.context.deadlines.set(sync_key(shard, group.group_id), delay_ms, action)


def cancel_sync(shard: GroupShard, group: ClassicGroup) -> None:
    shard.context.deadlines.cancel(sync_key(shard, group.group_id))


def on_offset_commit(shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
    """A commit renews the member's session too (Kafka: ``OffsetMetadataManager.commitOffset``)."""
    member = group.members.get(member_id)
    if member is not None and group.state in (
        ClassicGroupState.STABLE,
        ClassicGroupState.PREPARING_REBALANCE,
    ):
        renew_session(shard, group, member)


def cancel_all(shard: GroupShard, group: ClassicGroup) -> None:
    """Cancel all timers of the group."""
    cancel_join(shard, group)
    cancel_sync(shard, group)
    for member_id in (*group.members, *group.pending_joins):
        cancel_session(shard, group, member_id)
