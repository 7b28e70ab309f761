"""`StoredShareState`: what the records of a share partition make, and the records of it.

Source: ``ShareGroupOffset``, ``ShareCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.coordinator.share.batches import combine
from oncelog.coordinator.share.state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    StateBatch,
)
from oncelog.wire.stored import share as records
from oncelog.wire.stored.share import ShareSnapshotValue, ShareUpdateValue

NO_TIMESTAMP = 0


class StoredShareState:
    """The state of a share partition. It changes only in `ShareShard.replay`."""

    __slots__ = (
        "batches",
        "create_timestamp",
        "delivery_complete_count",
        "leader_epoch",
        "leader_epoch_max",
        "snapshot_epoch",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "state_epoch_max",
        "updates",
        "write_timestamp",
    )

    def __init__(self, snapshot_epoch: int) -> None:
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = 0
        self.leader_epoch = 0
        self.start_offset = UNINITIALIZED_START_OFFSET
        self.delivery_complete_count = UNKNOWN_COUNT
        self.batches: list[StateBatch] = []
        self.create_timestamp = NO_TIMESTAMP
        """When the state was written as a client asked for it, in milliseconds."""
        self.write_timestamp = NO_TIMESTAMP
        """When its last snapshot was written, in milliseconds. It is later if nobody asked for that snapshot."""
        self.state_epoch_max = -1
        """Callers with a lower state epoch are fenced."""
        self.leader_epoch_max = -1
        """Callers with a lower leader epoch are fenced."""
        self.updates = 0
        """The number of updates since they last filled up a snapshot's share."""
        self.snapshot_offset = -1
        """The offset of the last snapshot; -1 if there is none."""

    def apply_snapshot(self, value: ShareSnapshotValue, offset: int, updates_per_snapshot: int) -> None:
        """Take over a snapshot at ``offset`` of the log."""
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = []
        combine(self.batches, from_rows(value.state_batches), UNINITIALIZED_START_OFFSET)
        self.create_timestamp = value.create_timestamp
        self.write_timestamp = value.write_timestamp
        self.state_epoch_max = max(self.state_epoch_max, value.state_epoch)
        self.leader_epoch_max = max(self.leader_epoch_max, value.leader_epoch)
        self.snapshot_offset = offset
        if self.updates >= updates_per_snapshot:
            self.updates = 0

    def apply_update(self, value: ShareUpdateValue) -> None:
        """Take over an update."""
        if value.leader_epoch != -1:
            self.leader_epoch = value.leader_epoch
        if value.start_offset != UNINITIALIZED_START_OFFSET:
            self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        combine(self.batches, from_rows(value.state_batches), self.start_offset)
        self.leader_epoch_max = max(self.leader_epoch_max, value.leader_epoch)
        self.updates += 1


def from_rows(rows: Iterable[records.StateBatch]) -> list[StateBatch]:
    return [
        StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count) for row in rows
    ]


def _to_rows(batches: Sequence[StateBatch]) -> list[records.StateBatch]:
    return [records.StateBatch(*batch) for batch in batches]


def snapshot_record(
    key: SharePartitionKey,
    *,
    snapshot_epoch: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    create_timestamp: int,
    write_timestamp: int,
    batches: Sequence[StateBatch],
) -> CoordinatorRecord:
    value = records.ShareSnapshotValue(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        delivery_complete_count,
        create_timestamp,
        write_timestamp,
        _to_rows(batches),
    )
    return CoordinatorRecord(records.ShareSnapshotKey(*key), value)


def update_record(
    key: SharePartitionKey,
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> CoordinatorRecord:
    value = records.ShareUpdateValue(
        snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, _to_rows(batches)
    )
    return CoordinatorRecord(records.ShareUpdateKey(*key), value)


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """Return the record that deletes the state."""
    return CoordinatorRecord(records.ShareSnapshotKey(*key), None)
