"""The session timers of a share group's members: a member without heartbeats for the session timeout is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.group import SHARE
from oncelog.coordinator.groups.modern.timers import cancel, session_kind, start
from oncelog.coordinator.groups.share import settings

if TYPE_CHECKING:
    from oncelog.coordinator.groups.shard import GroupShard

SESSION = session_kind(SHARE)


def renew_session(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Restart the member's session timeout."""

    def expire() -> None:
        from oncelog.coordinator.groups.share.leave import fence_expired  # a cycle: it cancels this timer

        fence_expired(shard, group_id, member_id)

    start(shard, SESSION, group_id, member_id, settings.session_timeout_ms(shard.context, group_id), expire)


def cancel_session(shard: GroupShard, group_id: str, member_id: str) -> None:
    cancel(shard, SESSION, group_id, member_id)
