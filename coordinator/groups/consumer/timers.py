"""The timers of a consumer group's members. A member whose timer expires is fenced.

- session: no heartbeat within the session timeout;
- rebalance: it did not revoke partitions within its rebalance timeout;
- join, sync (members of the classic protocol): no JoinGroup after it was told to rejoin, no SyncGroup after a join.

Source: Kafka's ``GroupMetadataManager``, ``schedule…`` and ``cancel…``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer import settings
from oncelog.coordinator.groups.group import CONSUMER
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.coordinator.groups.modern.timers import cancel, key, session_kind, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.shard import GroupShard

SESSION, REBALANCE, JOIN, SYNC = KINDS = (
    session_kind(CONSUMER),
    "consumer-rebalance",
    "consumer-join",
    "consumer-sync",
)

REGEX = "consumer-regex"
_REASONS = {
    SESSION: "session expired",
    REBALANCE: "did not revoke its partitions in time",
    JOIN: "did not join again in time",
    SYNC: "did not send SyncGroup in time",
}


def cancel_all(shard: GroupShard, group_id: str, member_id: str) -> None:
    for kind in KINDS:
        cancel(shard, kind, group_id, member_id)


def renew_session(
    shard: GroupShard, group_id: str, member_id: str, session_timeout_ms: int | None = None
) -> None:
    """Restart the member's session timeout: by default the group's; a classic member has its own."""
    if session_timeout_ms is None:
        session_timeout_ms = settings.session_timeout_ms(shard.context, group_id)
    _fence_in(shard, SESSION, group_id, member_id, session_timeout_ms)


def await_join(shard: GroupShard, group_id: str, member: ConsumerGroupMember) -> None:
    """Start the join timer of a classic member that must rejoin; a running timer is not extended."""
    if key(shard, JOIN, group_id, member.member_id) not in shard.context.deadlines:
        _fence_in(shard, JOIN, group_id, member.member_id, member.rebalance_timeout_ms)


def await_sync(shard: GroupShard, group_id: str, member_id: str, rebalance_timeout_ms: int) -> None:
    _fence_in(shard, SYNC, group_id, member_id, rebalance_timeout_ms)


def update_rebalance_timeout(shard: GroupShard, group_id: str, member: ConsumerGroupMember) -> None:
    """Start or cancel the rebalance timer after a change of the member's current assignment.

    A member of the classic protocol has none: it revokes between its joins, which have their own timer.
    """
    if member.is_classic:
        return
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        _await_revocation(shard, group_id, member)
    else:
        cancel(shard, REBALANCE, group_id, member.member_id)


def _await_revocation(shard: GroupShard, group_id: str, member: ConsumerGroupMember) -> None:
    member_id, epoch = member.member_id, member.epoch
    start(
        shard,
        REBALANCE,
        group_id,
        member_id,
        member.rebalance_timeout_ms,
        lambda: _fence(shard, group_id, member_id, REBALANCE, epoch),
    )


def start_all(shard: GroupShard, group: ConsumerGroup) -> None:
    """The group was loaded: start a full session timeout, and a full rebalance timeout where needed, for each
    member.
    """
    for member in group.members.values():
        renew_session(shard, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            _await_revocation(shard, group.group_id, member)


def _fence_in(shard: GroupShard, kind: str, group_id: str, member_id: str, delay_ms: int) -> None:
    start(shard, kind, group_id, member_id, delay_ms, lambda: _fence(shard, group_id, member_id, kind, None))


def resolve_soon(shard: GroupShard, group_id: str, action: Callable[[], None]) -> None:
    """Call ``action``, which resolves the group's regular expressions, soon after the current step."""
    start(shard, REGEX, group_id, "", 0, action)


def resolves_soon(shard: GroupShard, group_id: str) -> bool:
    return key(shard, REGEX, group_id) in shard.context.deadlines


def cancel_group(shard: GroupShard, group: ConsumerGroup) -> None:
    """Cancel all timers of the group."""
    cancel(shard, REGEX, group.group_id)
    for member_id in group.members:
        cancel_all(shard, group.group_id, member_id)


def _fence(shard: GroupShard, group_id: str, member_id: str, kind: str, epoch: int | None) -> None:
    from oncelog.coordinator.groups.consumer.leave import (
        fence_expired,
    )  # a cycle: it cancels the timers set here

    fence_expired(shard, group_id, member_id, _REASONS[kind], only_at_epoch=epoch)
