"""`ProducerStateManager`: the producers of a partition, with the last five batches of each, for idempotence, and their
open transactions.

A batch is checked before it is written, which changes nothing, and added afterwards; so a failed write leaves
no trace. Source: Kafka's ``ProducerStateManager``, ``ProducerAppendInfo``, ``ProducerStateEntry``; KIP-98.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from oncelog.broker.log.indexes import AbortedTxn
from oncelog.broker.log.producers.entry import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    SEQUENCE_MAX,
    BatchMetadata,
    ProducerEntry,
)
from oncelog.broker.log.producers.snapshots import SnapshotEntry
from oncelog.broker.log.producers.verification import Verification
from oncelog.broker.log.time_gaps import TimeGaps
from oncelog.wire.batch import BatchHeader
from oncelog.wire.errors import ErrorCode, KafkaError

EPOCH_MAX = 0x7FFF
TRANSACTIONS_V2 = 2
"""The transaction version from which on every transaction has a producer epoch of its own (KIP-890)."""

NO_TIME_GAPS = TimeGaps().aged


class AppendOrigin(IntEnum):
    """Who appends (Kafka: ``AppendOrigin``)."""

    REPLICATION = 0
    """The log itself, which reads back its own batches: nothing is refused."""
    COORDINATOR = 1
    """A group or transaction coordinator of this broker."""
    CLIENT = 2
    """A Produce request."""


class Marker(NamedTuple):
    """The content of an end-transaction marker."""

    coordinator_epoch: int
    timestamp: int
    """In ms."""
    aborted: bool


class ProducerStateManager:
    """All producers of one partition, and its transactions."""

    __slots__ = (
        "_completed",
        "_ongoing",
        "_verifications",
        "has_transactions",
        "is_complete",
        "producers",
    )

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.is_complete = True
        """Whether it has the last five batches of each producer: a snapshot has only the last one."""
        self._ongoing: list[tuple[int, int]] = []
        """Open transactions, as (first offset, producer id), rising."""
        self._completed: list[tuple[int, int]] = []
        """Ended transactions whose marker the high watermark has not passed, as (first, last offset),
        rising."""
        self._verifications: dict[int, Verification] = {}
        self.has_transactions = False
        """Whether either list has any: a flag, since every append asks."""

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of all transactions that are open, or ended by a marker that the high watermark has
        not passed."""
        ongoing, completed = self._ongoing, self._completed
        if not ongoing:
            return completed[0][0] if completed else None
        return min(ongoing[0][0], completed[0][0]) if completed else ongoing[0][0]

    # Data batches.

    def is_next(self, header: BatchHeader) -> bool:
        """Whether a batch simply follows its producer's last one, as most do. Then it is no duplicate and
        `check` would accept it."""
        entry = self.producers.get(header.producer_id)
        return (
            entry is not None
            and header.base_sequence == entry.next_sequence
            and header.producer_epoch == entry.producer_epoch
            and (entry.txn_first_offset < 0 or header.is_transactional)
            and header.producer_id not in self._verifications
        )

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The one of the last five batches that has the same epoch and sequence numbers."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Check that a data batch may follow its producer's last one. Returns the batch that it duplicates, if any.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an epoch below the last one, OUT_OF_ORDER_SEQUENCE_NUMBER
        for a gap or a new epoch that does not begin at 0, INVALID_TXN_STATE for a non-transactional batch while
        its producer has a transaction open. An unknown producer may begin anywhere.
        """
        if origin is AppendOrigin.CLIENT:
            duplicate = self.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        entry = self.producers.get(header.producer_id)
        if origin is AppendOrigin.CLIENT and header.producer_id in self._verifications:
            self._check_verified_sequence(entry, header)
        if entry is None:
            return None
        self._check_epoch(entry, header.producer_epoch, origin, 0)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, header)
        if entry.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has a transaction open: it may only write to that",
            )
        return None

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, raises_epochs: bool
    ) -> bool:
        """Whether the coordinator must verify this producer's transactional batch before it is written: the
        producer has no transaction open here in that epoch. Raises KafkaError: INVALID_PRODUCER_EPOCH.
        """
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(entry, epoch, AppendOrigin.CLIENT, 0)
            if entry.txn_first_offset >= 0 and entry.producer_epoch == epoch:
                return False
        known = self._verifications.get(producer_id)
        if known is None:
            self._verifications[producer_id] = Verification(sequence, epoch, raises_epochs, now_ms)
        else:
            known.note(sequence, epoch)
        return True

    def verification_of(self, producer_id: int) -> Verification | None:
        """What `start_verification` has noted of a producer, until its transaction begins here or a marker ends it."""
        return self._verifications.get(producer_id)

    def is_verified(self, producer_id: int, epoch: int, guard: Verification | None) -> bool:
        """Whether the producer's transaction is open here in that epoch, or no marker has come since `verification_of`
        gave ``guard`` (Kafka: ``UnifiedLog.batchMissingRequiredVerification``).
        """
        entry = self.producers.get(producer_id)
        if entry is not None and entry.txn_first_offset >= 0 and entry.producer_epoch == epoch:
            return True
        return guard is not None and self._verifications.get(producer_id) is guard

    def _check_verified_sequence(self, entry: ProducerEntry | None, header: BatchHeader) -> None:
        verification = self._verifications[header.producer_id]
        first = header.base_sequence
        begins = verification.raises_epochs and first != 0 and (entry is None or not entry.batches)
        if begins or first > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} begins its transaction with sequence {first}, not "
                f"{0 if begins else verification.lowest_sequence}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        first = header.base_sequence
        if header.producer_epoch != entry.producer_epoch:
            if first != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {entry.producer_id} begins epoch {header.producer_epoch} with sequence {first} "
                    f"instead of 0 (its epoch was {entry.producer_epoch})",
                )
        elif first != entry.next_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {entry.producer_id} sent sequence {first} after {entry.last_sequence}",
            )

    @staticmethod
    def _check_epoch(
        entry: ProducerEntry, epoch: int, origin: AppendOrigin, transaction_version: int
    ) -> None:
        current = entry.producer_epoch
        if origin is AppendOrigin.REPLICATION or epoch > current:
            return
        if epoch == current:
            if transaction_version < TRANSACTIONS_V2:
                return
            # A marker of transactions v2 carries a new epoch. If the epoch is the same, it is a retry of a
            # marker that was written; with the highest epoch it is accepted so that a broken transaction can be
            # ended.
            if entry.txn_first_offset < 0 or epoch == EPOCH_MAX:
                return
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Producer {entry.producer_id} used epoch {epoch}, its last one is {current}",
        )

    def add(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Note a data batch that is in the log at ``base_offset``; ``timestamp`` is its maximum (ms)."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.move_to_epoch(header.producer_epoch)
        first, delta = header.base_sequence, header.last_offset_delta
        last = (first + delta) & SEQUENCE_MAX
        entry.batches.append(BatchMetadata(first, last, base_offset, base_offset + delta, timestamp))
        entry.next_sequence = (last + 1) & SEQUENCE_MAX
        entry.last_timestamp = timestamp
        if entry.txn_first_offset < 0 and header.is_transactional:
            entry.txn_first_offset = base_offset
            insort(self._ongoing, (base_offset, producer_id))
            self.has_transactions = True
            self._verifications.pop(producer_id, None)

    # Markers.

    def check_marker(
        self, header: BatchHeader, coordinator_epoch: int, origin: AppendOrigin, transaction_version: int
    ) -> None:
        """Check that an end-transaction marker may be written.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, origin, transaction_version)
        if origin is not AppendOrigin.REPLICATION and entry.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {header.producer_id} is below "
                f"{entry.coordinator_epoch}",
            )

    def add_marker(self, header: BatchHeader, offset: int, marker: Marker) -> AbortedTxn | None:
        """Note a marker that is in the log at ``offset``. Returns the transaction that it aborted, None if
        there is none."""
        producer_id = header.producer_id
        verification = self._verifications.get(producer_id)
        # With transactions v2, a marker of the verified epoch belongs to the transaction before the verified
        # one.
        if verification is not None and not (
            verification.raises_epochs and header.producer_epoch == verification.producer_epoch
        ):
            del self._verifications[producer_id]
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.txn_first_offset
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.txn_first_offset = NO_OFFSET
        if first_offset < 0:
            return None
        self._ongoing.remove((first_offset, producer_id))
        insort(self._completed, (first_offset, offset))
        if not marker.aborted:
            return None
        last_stable_offset = self._ongoing[0][0] if self._ongoing else offset + 1
        return AbortedTxn(producer_id, first_offset, offset, last_stable_offset)

    # The ends of the log.

    def on_high_watermark(self, offset: int) -> None:
        """The high watermark is ``offset`` now: forget ended transactions whose marker it has passed."""
        if self._completed:
            self._completed = [row for row in self._completed if row[1] >= offset]
        self.has_transactions = bool(self._ongoing or self._completed)

    def completed_below(self, offset: int) -> list[tuple[int, int]]:
        """The ended transactions that `first_unstable_offset` counts and whose marker is below ``offset``."""
        return [row for row in self._completed if row[1] < offset]

    def add_completed(self, rows: Iterable[tuple[int, int]]) -> None:
        """Count these ended transactions in `first_unstable_offset`, too: a snapshot does not have them."""
        self._completed = sorted({*self._completed, *rows})
        self.has_transactions = bool(self._ongoing or self._completed)

    def remove_expired(
        self, now_ms: int, expiration_ms: int, aged: Callable[[int], int] = NO_TIME_GAPS
    ) -> Iterator[int | None]:
        """Forget producers without an open transaction that have written nothing for ``expiration_ms``. Yields their
        ids, and None for each other one: a step.

        ``aged`` returns from when the age of a timestamp counts (`TimeGaps.aged`).
        """
        for producer_id, entry in list(self.producers.items()):
            if (
                entry.txn_first_offset < 0
                and now_ms - aged(entry.last_timestamp) >= expiration_ms
                and self.producers.get(producer_id) is entry
            ):
                del self.producers[producer_id]
                yield producer_id
            else:
                yield None
        for producer_id, verification in list(self._verifications.items()):
            if (
                now_ms - verification.timestamp >= expiration_ms
                and self._verifications.get(producer_id) is verification
            ):
                del self._verifications[producer_id]
            yield None

    def replace_with(self, other: ProducerStateManager) -> None:
        """Take over everything from ``other``, but for verifications, which are about what is still to come."""
        self.producers = other.producers
        self.is_complete = other.is_complete
        self._ongoing, self._completed = other._ongoing, other._completed
        self.has_transactions = other.has_transactions

    def clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self.has_transactions = False

    # Snapshots.

    def snapshot(self) -> list[SnapshotEntry]:
        return [entry.to_snapshot() for entry in self.producers.values()]

    def load(
        self,
        rows: Iterable[SnapshotEntry],
        now_ms: int,
        expiration_ms: int,
        aged: Callable[[int], int] = NO_TIME_GAPS,
    ) -> None:
        """Replace everything with a snapshot, without the producers that have expired by now (see
        `remove_expired`).
        """
        self.clear()
        for row in rows:
            if row.txn_first_offset < 0 and now_ms - aged(row.timestamp) >= expiration_ms:
                continue
            entry = ProducerEntry.of_snapshot(row)
            if row.txn_first_offset >= 0:
                insort(self._ongoing, (row.txn_first_offset, row.producer_id))
                self.has_transactions = True
            self.producers[row.producer_id] = entry
        self.is_complete = not self.producers
