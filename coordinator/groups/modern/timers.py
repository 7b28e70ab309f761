"""The timers of groups and their members (Kafka: ``schedule…`` and ``cancel…`` of ``GroupMetadataManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.group_deadline import GroupDeadline

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from oncelog.coordinator.groups.shard import GroupShard


COMPUTATION = "target-assignment"
"""The rest of a group's target assignment is computed (`modern.target`)."""


def session_kind(group_type: str) -> str:
    """The kind of the session timers in groups of a type (`coordinator.groups.group`)."""
    return f"{group_type}-session"


def key(shard: GroupShard, kind: str, group_id: str, member_id: str = "") -> Hashable:
    return GroupDeadline(shard.partition, group_id, kind, member_id)


def cancel(shard: GroupShard, kind: str, group_id: str, member_id: str = "") -> None:
    shard.context.deadlines.cancel(key(shard, kind, group_id, member_id))


def start(
    shard: GroupShard, kind: str, group_id: str, member_id: str, delay_ms: int, action: Callable[[], None]
) -> None:
    """Start the timer anew: ``action`` is called when it comes due."""
    shard.context.deadlines.set(key(shard, kind, group_id, member_id), max(delay_ms, 0), action)
