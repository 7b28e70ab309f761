"""`ProducerEntry`: the state of one producer in a partition.

Source: Kafka's ``ProducerStateEntry``, ``BatchMetadata``.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from oncelog.broker.log.producers.snapshots import SnapshotEntry

BATCHES_RETAINED = 5
"""Batches remembered of each producer: an idempotent producer has at most this many requests in flight."""

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
SEQUENCE_MAX = 0x7FFFFFFF
COORDINATOR_EPOCH_NONE = -1
NO_TIMESTAMP = -1


class BatchMetadata(NamedTuple):
    """An appended batch, as the response to its duplicate needs it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    """Max timestamp of the batch, in ms."""


class ProducerEntry:
    """One producer: its epoch, its last batches (oldest first) and where its open transaction began."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = COORDINATOR_EPOCH_NONE
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        self.next_sequence = 0
        """The sequence number that follows the last batch's."""
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_RETAINED)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def move_to_epoch(self, epoch: int) -> None:
        """Sequence numbers begin at 0 in every epoch, so the batches of the last epoch are forgotten."""
        if epoch != self.producer_epoch:
            self.batches.clear()
            self.next_sequence = 0
            self.producer_epoch = epoch

    @classmethod
    def of_snapshot(cls, row: SnapshotEntry) -> ProducerEntry:
        """The producer that a row of a snapshot describes; of its batches, the row has only the last one."""
        entry = cls(row.producer_id)
        entry.producer_epoch = row.producer_epoch
        entry.coordinator_epoch = row.coordinator_epoch
        entry.last_timestamp = row.timestamp
        if row.last_offset >= 0:
            entry.batches.append(
                BatchMetadata(
                    first_sequence_of(row.last_sequence, row.offset_delta),
                    row.last_sequence,
                    row.last_offset - row.offset_delta,
                    row.last_offset,
                    row.timestamp,
                )
            )
            entry.next_sequence = (row.last_sequence + 1) & SEQUENCE_MAX
        if row.txn_first_offset >= 0:
            entry.txn_first_offset = row.txn_first_offset
        return entry

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else None
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            NO_SEQUENCE if last is None else last.last_sequence,
            NO_OFFSET if last is None else last.last_offset,
            0 if last is None else last.last_offset - last.first_offset,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


def first_sequence_of(last_sequence: int, offset_delta: int) -> int:
    """The first sequence number of a batch. After 2**31-1 follows 0."""
    return (last_sequence - offset_delta) & SEQUENCE_MAX
