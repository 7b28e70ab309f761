"""Offsets that are forgotten without being asked: expired ones, and those of topics that are gone.

One step per group. Source: ``OffsetMetadataManager.cleanupExpiredOffsets``, ``onTopicsDeleted``,
``GroupCoordinatorShard.cleanupGroupMetadata``; KIP-211.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.groups.offset_store import CommittedOffset
from coordinator.groups.offsets import NO_EXPIRY, tombstone
from wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.groups.group import Group
    from coordinator.groups.shard import GroupShard
    from coordinator.journal import CoordinatorRecord
    from wire.schema import Uuid

TOMBSTONES_AT_ONCE_MAX = 1_000
"""Records of one batch: what belongs to a group of many offsets needs no batch larger than a topic allows."""

MINUTE_MS = 60_000


def expire_group(shard: GroupShard, group_id: str) -> None:
    """Forget offsets of the group that have expired, and the group if it has no members and nothing else is left.

    Raises what the journal raises; the next time does the rest.
    """
    group = shard.groups[group_id]
    store = shard.offsets
    records: list[CoordinatorRecord] = []
    left = False
    now_ms = shard.context.now_ms()
    retention_ms = shard.context.settings().offsets_retention_minutes * MINUTE_MS
    for topic, offsets in store.topics(group_id).items():
        is_read = group.is_subscribed_to(topic)
        for partition, stored in offsets.items():
            at = (group_id, topic, partition)
            if (
                not is_read
                and _is_expired(group, CommittedOffset._make(stored), now_ms, retention_ms)
                and not store.is_open(*at)
            ):
                records.append(tombstone(*at))
            else:
                left = True
    if not left and not store.open_partitions(group_id) and group.is_empty():
        records += group.tombstones()
    _commit_in_parts(shard, records)


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    expires_ms = group.offset_expires_at(committed.commit_timestamp, retention_ms)
    if expires_ms is None:
        return False
    return now_ms >= (expires_ms if committed.expire_timestamp == NO_EXPIRY else committed.expire_timestamp)


def forget_topics(shard: GroupShard, group_id: str, deleted: Sequence[tuple[str, Uuid]]) -> None:
    """Forget the group's offsets of topics, by name and id, that were deleted; not those of a newer topic of the name.

    Raises what the journal raises.
    """
    store = shard.offsets
    everywhere = [store.committed, *store.pending.values()]
    places = {
        (name, partition): None
        for name, topic_id in deleted
        for offsets in everywhere
        for partition, stored in offsets.of_topic(group_id, name).items()
        if CommittedOffset._make(stored).topic_id in (ZERO_UUID, topic_id)
    }
    _commit_in_parts(shard, [tombstone(group_id, *place) for place in places])


def _commit_in_parts(shard: GroupShard, records: Sequence[CoordinatorRecord]) -> None:
    """Each part for itself is right: of what is to be forgotten, some is."""
    for at in range(0, len(records), TOMBSTONES_AT_ONCE_MAX):
        shard.commit(records[at : at + TOMBSTONES_AT_ONCE_MAX])
