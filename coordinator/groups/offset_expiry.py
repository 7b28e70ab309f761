"""Offsets that are removed without a request: expired offsets, and offsets of deleted topics.

Each function is an iterator of short steps. Source: ``OffsetMetadataManager.cleanupExpiredOffsets``,
``onTopicsDeleted``, ``GroupCoordinatorShard.cleanupGroupMetadata``; KIP-211.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.offsets import NO_EXPIRY, tombstone
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncelog.coordinator.groups.group import Group
    from oncelog.coordinator.groups.offset_store import CommittedOffset, Offsets
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Uuid

TOMBSTONES_PER_BATCH_MAX = 1_000
"""Records of one batch, and offsets examined in one step. However many offsets a group has, its tombstones fit into
batches that the topic accepts, and a step stays short."""

MINUTE_MS = 60_000


def expire_group(shard: GroupShard, group_id: str) -> Iterator[None]:
    """Remove the group's expired offsets; remove the group too if it then has neither members nor offsets.

    Each step examines some offsets; commits between two steps are kept. Raises KafkaError if an append fails; the next
    run removes the rest.
    """
    store = shard.offsets
    partitions = [(topic, at) for topic, offsets in store.topics(group_id).items() for at in offsets]
    for begin in range(0, max(len(partitions), 1), TOMBSTONES_PER_BATCH_MAX):
        group = shard.groups.get(group_id)
        if group is None:
            return
        part = partitions[begin : begin + TOMBSTONES_PER_BATCH_MAX]
        records = [tombstone(group_id, *at) for at in _expired(shard, group, part)]
        expired = len(records)
        left = sum(len(offsets) for offsets in store.topics(group_id).values()) - len(records)
        is_over = group.expires and not left and not store.pending_partitions(group_id) and group.is_empty()
        if is_over:
            records += group.tombstones()
        shard.commit(records)
        if expired:
            shard.context.timer_event("offsets expired", group=group_id, count=expired)
        if is_over:
            shard.context.timer_event("group removed", group=group_id)
        yield


def _expired(
    shard: GroupShard, group: Group, partitions: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    now_ms = shard.context.now_ms()
    retention_ms = shard.context.settings().offsets_retention_minutes * MINUTE_MS
    for topic, partition in partitions:
        at = (group.group_id, topic, partition)
        committed = shard.offsets.committed.get(*at)
        if (
            committed is not None
            and not group.is_subscribed_to(topic)
            and _is_expired(group, committed, now_ms, retention_ms)
            and not shard.offsets.has_pending(*at)
        ):
            yield topic, partition


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    expires_ms = group.offset_expires_at(committed.commit_timestamp, retention_ms)
    if expires_ms is None:
        return False
    return now_ms >= (expires_ms if committed.expire_timestamp == NO_EXPIRY else committed.expire_timestamp)


def remove_deleted_topics(
    shard: GroupShard, group_id: str, deleted: Sequence[tuple[str, Uuid]]
) -> Iterator[None]:
    """Remove the group's offsets of deleted topics (name and id), but not those of a newer topic of the same name.

    Each step examines some offsets. Raises KafkaError if an append fails.
    """
    ids: dict[str, set[Uuid]] = {}
    for name, topic_id in deleted:
        ids.setdefault(name, {ZERO_UUID}).add(topic_id)
    partitions = list(
        {
            (name, partition): None
            for name in ids
            for offsets in _all_offsets(shard)
            for partition in offsets.of_topic(group_id, name)
        }
    )
    for begin in range(0, len(partitions), TOMBSTONES_PER_BATCH_MAX):
        records = []
        for name, partition in partitions[begin : begin + TOMBSTONES_PER_BATCH_MAX]:
            stored = (offsets.get(group_id, name, partition) for offsets in _all_offsets(shard))
            if any(offset is not None and offset.topic_id in ids[name] for offset in stored):
                records.append(tombstone(group_id, name, partition))
        shard.commit(records)
        yield


def _all_offsets(shard: GroupShard) -> list[Offsets]:
    return [shard.offsets.committed, *shard.offsets.pending.values()]
