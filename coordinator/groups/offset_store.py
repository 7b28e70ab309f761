"""`OffsetStore`: the committed offsets of a shard's groups, and the pending offsets of open transactions.

It changes only in `replay_offset` and `OffsetStore.end_transaction`. Source: the stores in ``OffsetMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID
from oncelog.wire.stored.groups import LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Uuid
    from oncelog.wire.stored.groups import LegacyOffsetCommitKey


class CommittedOffset(NamedTuple):
    """A committed offset (fields as in OffsetCommitValue), and the offset of its record in the shard's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: Uuid
    record_offset: int


OffsetTuple = tuple[int, int, str, int, int, bytes, int]
"""A `CommittedOffset` as it is stored. The garbage collector does not traverse plain tuples of numbers and strings, of
which there may be millions (to traverse 300,000 objects blocks the loop for 50 ms and more)."""


class Offsets:
    """Offsets by group, topic and partition. No inner dict is empty."""

    __slots__ = ("by_group",)

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, OffsetTuple]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        stored = self.of_topic(group_id, topic).get(partition)
        return None if stored is None else CommittedOffset._make(stored)

    def of_topic(self, group_id: str, topic: str) -> Mapping[int, OffsetTuple]:
        return self.by_group.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS)

    def put(self, group_id: str, topic: str, partition: int, stored: OffsetTuple) -> None:
        self.by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = stored

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove an offset, if it is there."""
        topics = self.by_group.get(group_id, _NO_TOPICS)
        partitions = topics.get(topic, _NO_PARTITIONS)
        if partition not in partitions:
            return
        del partitions[partition]
        if not partitions:
            del topics[topic]
            if not topics:
                del self.by_group[group_id]

    def items(self) -> Iterator[tuple[str, str, int, OffsetTuple]]:
        for group_id, topics in self.by_group.items():
            for topic, partitions in topics.items():
                for partition, stored in partitions.items():
                    yield group_id, topic, partition, stored


_NO_PARTITIONS: dict[int, OffsetTuple] = {}
_NO_TOPICS: dict[str, dict[int, OffsetTuple]] = {}


class OffsetStore:
    """``committed``: the committed offsets. ``pending``: offsets in open transactions, by producer id."""

    __slots__ = ("_producers", "committed", "pending")

    def __init__(self) -> None:
        self.committed = Offsets()
        self.pending: dict[int, Offsets] = {}
        self._producers: dict[str, dict[tuple[str, int], dict[int, None]]] = {}
        """Producers with a pending offset, by group, topic and partition. No inner dict is empty."""

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, OffsetTuple]]:
        """The group's committed offsets by topic and partition; callers must not change them."""
        return self.committed.by_group.get(group_id, _NO_TOPICS)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for the partition."""
        return (topic, partition) in self._producers.get(group_id, ())

    def pending_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """Topic and partition of all pending offsets of the group."""
        return list(self._producers.get(group_id, ()))

    def apply(self, group_id: str, topic: str, partition: int, stored: OffsetTuple) -> None:
        """Store an offset that was committed outside of a transaction."""
        self.committed.put(group_id, topic, partition, stored)

    def apply_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, stored: OffsetTuple
    ) -> None:
        """Store a pending offset, which becomes valid if the producer's transaction commits."""
        self.pending.setdefault(producer_id, Offsets()).put(group_id, topic, partition, stored)
        self._producers.setdefault(group_id, {}).setdefault((topic, partition), {})[producer_id] = None

    def remove_all(self, group_id: str, topic: str, partition: int) -> None:
        """Apply a tombstone: remove the committed offset and all pending ones."""
        self.committed.remove(group_id, topic, partition)
        for producer_id in self._producers.get(group_id, {}).get((topic, partition), ()):
            pending = self.pending[producer_id]
            pending.remove(group_id, topic, partition)
            if not pending.by_group:
                del self.pending[producer_id]
        self._remove_producers(group_id, topic, partition)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a marker. Of a pending and a committed offset, the one later in the log wins. The order of markers
        cannot decide: compaction separates records from their markers.
        """
        pending = self.pending.pop(producer_id, None)
        if pending is None:
            return
        for group_id, topic, partition, stored in pending.items():
            producers = self._producers[group_id][topic, partition]
            producers.pop(producer_id, None)
            if not producers:
                self._remove_producers(group_id, topic, partition)
            if committed:
                newest = self.committed.get(group_id, topic, partition)
                if newest is None or CommittedOffset._make(stored).record_offset > newest.record_offset:
                    self.committed.put(group_id, topic, partition, stored)

    def _remove_producers(self, group_id: str, topic: str, partition: int) -> None:
        partitions = self._producers.get(group_id, {})
        if partitions.pop((topic, partition), None) is not None and not partitions:
            del self._producers[group_id]


def replay_offset(
    shard: GroupShard,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: OffsetCommitValue | LegacyOffsetCommitValue | None,
    offset: int,
    producer_id: int,
) -> None:
    """Apply a committed offset or its tombstone. The first offset of an unknown group creates the group: an empty
    classic group without a protocol type ("simple").
    """
    group_id, topic, partition = key.group, key.topic, key.partition
    if value is None:
        shard.offsets.remove_all(group_id, topic, partition)
        return
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id)
    stored = _stored(value, offset)
    if producer_id == NO_PRODUCER_ID:
        shard.offsets.apply(group_id, topic, partition, stored)
    else:
        shard.offsets.apply_pending(producer_id, group_id, topic, partition, stored)


def _stored(value: OffsetCommitValue | LegacyOffsetCommitValue, record_offset: int) -> OffsetTuple:
    if isinstance(value, LegacyOffsetCommitValue):
        value = OffsetCommitValue(
            value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
        )
    return (
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        record_offset,
    )
