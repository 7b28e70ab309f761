"""`ShareShard`: the share partitions whose state one partition of ``__share_group_state`` stores.

Durable state changes only in `replay`. The steps of requests are in `steps`, those that nobody asks for in `upkeep`.
Source: ``ShareCoordinatorShard``, ``ShareCoordinatorOffsetsManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID, CoordinatorRecord, PartitionWriter
from oncelog.coordinator.share.state import SharePartitionKey
from oncelog.coordinator.share.stored_state import StoredShareState
from oncelog.wire.errors import KafkaError
from oncelog.wire.schema import Message, Uuid
from oncelog.wire.stored.share import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)


class ShareSettings(Protocol):
    """The broker configuration that the share coordinator reads, with the names of `broker.config`."""

    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_cold_partition_snapshot_interval_ms: int


class ShareContext:
    """The outside world of the share coordinator's shards, the same for all of a node.

    ``now_ms`` returns wall time in milliseconds, ``settings`` the current settings, ``partition_count`` the number of a
    topic's partitions, 0 if there is no such topic.
    """

    __slots__ = ("now_ms", "partition_count", "settings")

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        settings: Callable[[], ShareSettings],
        partition_count: Callable[[Uuid], int],
    ) -> None:
        self.now_ms = now_ms
        self.settings = settings
        self.partition_count = partition_count


class ShareShard:
    """The shard of one ``partition``, to which ``writer`` appends."""

    __slots__ = ("_last_tombstone", "context", "partition", "states", "writer")

    def __init__(self, partition: int, writer: PartitionWriter, context: ShareContext) -> None:
        self.partition = partition
        self.writer = writer
        self.context = context
        self.states: dict[SharePartitionKey, StoredShareState] = {}
        self._last_tombstone = -1
        """The offset of the last tombstone."""

    def commit(self, records: Sequence[CoordinatorRecord]) -> None:
        """Append ``records`` as one batch, then replay them. Raises KafkaError, as `to_client_error` returns it, if the
        append fails; then nothing has changed.
        """
        try:
            offset = self.writer.append(records)
        except KafkaError as error:
            raise to_client_error(error) from error
        for record_offset, record in enumerate(records, offset):
            self.replay(record.key, record.value, record_offset)

    def replay(
        self, key: Message, value: Message | None, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply the log's record at ``offset``."""
        if isinstance(key, ShareUpdateKey):
            assert isinstance(value, ShareUpdateValue)
            state = self._state(_key_of(key), value.snapshot_epoch)
            state.apply_update(value)
            return
        assert isinstance(key, ShareSnapshotKey)
        if value is None:
            self.states.pop(_key_of(key), None)
            self._last_tombstone = offset
            return
        assert isinstance(value, ShareSnapshotValue)
        state = self._state(_key_of(key), value.snapshot_epoch)
        state.apply_snapshot(
            value, offset, self.context.settings().share_coordinator_snapshot_update_records_per_snapshot
        )

    def _state(self, key: SharePartitionKey, snapshot_epoch: int) -> StoredShareState:
        found = self.states.get(key)
        if found is None:
            found = self.states[key] = StoredShareState(snapshot_epoch)
        return found

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no record of this topic belongs to a transaction."""

    def on_loaded(self) -> None:
        """Do nothing: the shard has no timers."""

    def on_unloaded(self) -> None:
        """Do nothing: nobody waits for the shard."""

    def redundant_offset(self) -> int:
        """Return the offset before which no record matters any more: that of the oldest last snapshot. Without a state
        it is that of the last tombstone, as in Kafka. 0 if every record matters.
        """
        offsets = [state.snapshot_offset for state in self.states.values()]
        return max(min(offsets, default=self._last_tombstone), 0)


def _key_of(key: ShareSnapshotKey | ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)
