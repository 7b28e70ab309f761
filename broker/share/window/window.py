"""`Window`: the records of one partition that are in flight for one share group.

The window begins at the start offset, before which all records are done, and ends with the last record that was ever
delivered. In between lie batches, each of records that were acquired together. Pure: no I/O, and the time comes in.
Changes that have to be stored first are returned as state batches; `complete` applies them or takes them back.
`acquisition.py` acquires records, `acknowledgement.py` acknowledges them. Source: ``SharePartition``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.share.window.in_flight import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINAL,
    NEVER,
    InFlightBatch,
    InFlightState,
)
from oncelog.coordinator.share.state import DeliveryState, StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STALE_LOCKS_MAX = 1_000
"""Entries of ended locks that may stay in the queue, beyond as many entries as there are locks."""


class Limits(NamedTuple):
    """The limits that the group's configuration sets."""

    records_max: int
    """Records in flight (``share.partition.max.record.locks``)."""
    deliveries_max: int
    """Deliveries of a record (``share.delivery.count.limit``)."""
    may_renew: bool = True
    """Whether members may renew their locks (``share.renew.acknowledge.enable``)."""
    has_dead_letter_queue: bool = False
    """Whether records that no member could process go to a topic before they are archived (KIP-1191)."""


class DeadLetterRange(NamedTuple):
    """Records in the state `ARCHIVING`, which is stored or is about to be."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool
    """A member rejected them; otherwise they were delivered too often."""


class StoredStateError(Exception):
    """The stored state of a share partition contradicts itself."""


class Window:
    """See the module. ``limits`` may be set at any time."""

    __slots__ = (
        "_locks",
        "_locks_max",
        "batches",
        "dead_letters",
        "delivery_complete_count",
        "end_offset",
        "firsts",
        "gap",
        "gap_end",
        "limits",
        "may_have_available",
        "start_offset",
    )

    def __init__(self, start_offset: int, limits: Limits, stored: Iterable[StateBatch] = ()) -> None:
        """``stored``: the stored state batches, in order of offsets. Raises StoredStateError."""
        self.limits = limits
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        """The last offset of the window, before the start offset if it is empty. Kafka's ``endOffset`` is the next one
        to acquire then."""
        self.batches: list[InFlightBatch] = []
        self.firsts: list[int] = []
        """The first offset of each batch."""
        self.delivery_complete_count = 0
        """Records from the start offset on whose state is final, or will be after the pending transition."""
        self.may_have_available = False
        """False: no record in the window is available. True: look for one."""
        self.gap = -1
        """Where the initial read gap begins (Kafka: ``InitialReadGapOffset``): from here to `gap_end` there may be
        records between the stored batches, without a stored state, delivered or not. It is valid while the window ends
        at `gap_end`. -1: there is none.
        """
        self.gap_end = -1
        self._locks: list[tuple[float, int, int]] = []
        """A heap: when the lock of records ends, their first and their last offset. They may have another lock by
        then, or none.
        """
        self._locks_max = STALE_LOCKS_MAX
        self.dead_letters: list[DeadLetterRange] = []
        """The records for the dead-letter queue that `take_dead_letters` has not returned yet."""
        self._restore(stored)

    def _restore(self, stored: Iterable[StateBatch]) -> None:
        before = self.start_offset - 1
        gap = -1
        for first, last, state, delivery_count in stored:
            if not max(self.start_offset, before + 1) <= first <= last:
                raise StoredStateError(f"stored batch {first}-{last} after offset {before}")
            if gap < 0 and first > before + 1:
                gap = before + 1
            before = last
            records = InFlightState(first, last, DeliveryState(state), delivery_count)
            self.firsts.append(first)
            self.batches.append(InFlightBatch(records))
            if records.is_final:
                self.delivery_complete_count += records.size
            elif records.state is ARCHIVING:
                records.is_rejected = delivery_count < self.limits.deliveries_max  # the cause is not stored
                self._note_dead_letters(records)
        if self.batches:
            self.may_have_available = True
            self.end_offset = before
            if gap >= 0:
                self.gap, self.gap_end = gap, before
            self.advance()

    def __repr__(self) -> str:
        return f"Window({self.start_offset}-{self.end_offset} {self.batches})"

    # -- looking

    @property
    def has_gap(self) -> bool:
        """Whether the initial read gap is still valid; see `gap`."""
        return self.gap >= 0 and self.gap_end == self.end_offset

    @property
    def record_count(self) -> int:
        """The records in flight: from the start offset to the end, whatever their state."""
        return self.end_offset - self.start_offset + 1

    def states(self) -> Iterator[InFlightState]:
        """All in-flight states, in order of offsets."""
        for batch in self.batches:
            yield from batch.states

    def floor(self, offset: int) -> int:
        """Return the index of the last batch that begins at or before the offset; -1 if there is none."""
        return bisect_right(self.firsts, offset) - 1

    def slice(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that begin from offset ``first`` to ``last``."""
        return self.batches[bisect_left(self.firsts, first) : bisect_right(self.firsts, last)]

    def next_fetch_offset(self) -> int:
        """Return the offset of the next read: of an available record, or the one after the window."""
        batches = self.batches
        if self.may_have_available and batches and self.start_offset <= batches[-1].last:
            found = self._first_available()
            if found is not None:
                return found
        self.may_have_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        has_gap = self.has_gap
        gap = self.gap
        for batch in self.batches:
            if has_gap:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for records in batch.states:
                if records.is_available:
                    return records.first
        return None

    def can_acquire(self) -> bool:
        """Whether there is room for more records, or one in the window is available again."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.record_count < self.limits.records_max

    # -- locks

    def queue_lock_end(self, deadline: float, first: int, last: int) -> None:
        """Put the end of the lock of these records into the queue."""
        if len(self._locks) > self._locks_max:
            self._locks = [
                (records.deadline, records.first, records.last)
                for records in self.states()
                if records.deadline != NEVER
            ]
            heapify(self._locks)
            self._locks_max = 2 * len(self._locks) + STALE_LOCKS_MAX
        heappush(self._locks, (deadline, first, last))

    def next_deadline(self) -> float:
        """Return the time of the next call of `expire`, in the clock's seconds. The lock may have ended before."""
        return self._locks[0][0] if self._locks else NEVER

    def expire(self, now: float) -> list[StateBatch]:
        """Make records available whose locks have ended, or archive them after the last delivery that is allowed.

        Returns the changes to store. They hold at once, also if they cannot be stored.
        """
        due: dict[int, InFlightBatch] = {}
        while self._locks and self._locks[0][0] <= now:
            _, first, last = heappop(self._locks)
            index = max(0, self.floor(first))
            due.update((batch.first, batch) for batch in self.batches[index : self.floor(last) + 1])
        changes: list[StateBatch] = []
        for _, batch in sorted(due.items()):
            self._expire(batch, now, changes)
        return joined(changes)

    def _expire(self, batch: InFlightBatch, now: float, changes: list[StateBatch]) -> None:
        if not any(records.is_due(now) for records in batch.states):
            return
        if batch.first < self.start_offset <= batch.last:
            batch.cut_between(self.start_offset, batch.last)
        changes += [self._give_back(records) for records in batch.states if records.is_due(now)]
        batch.join()

    def _give_back(self, records: InFlightState) -> StateBatch:
        state = self._after_release(records)
        records.transition_to(state)
        if state is ARCHIVED:
            self.delivery_complete_count += self._size_in_window(records)
        elif state is ARCHIVING:
            self._note_dead_letters(records)
        else:
            self.may_have_available = True
        return StateBatch(records.first, records.last, state, records.delivery_count)

    def _after_release(self, records: InFlightState) -> DeliveryState:
        """Return the state of released records: archived if they lie before the start offset, because the log start has
        moved; `after_failure` if this was the last delivery that is allowed; else available.
        """
        if records.last < self.start_offset:
            return ARCHIVED
        if records.delivery_count >= self.limits.deliveries_max:
            return self.after_failure
        return AVAILABLE

    @property
    def after_failure(self) -> DeliveryState:
        """The next state of records that no member could process."""
        return ARCHIVING if self.limits.has_dead_letter_queue else ARCHIVED

    # -- dead letters

    def _note_dead_letters(self, records: InFlightState) -> None:
        self.dead_letters.append(
            DeadLetterRange(records.first, records.last, records.delivery_count, records.is_rejected)
        )

    def take_dead_letters(self) -> list[DeadLetterRange]:
        """Return the records that the dead-letter queue is to get. When it has them, `archive_dead_letters` follows."""
        taken, self.dead_letters = self.dead_letters, []
        return taken

    def archive_dead_letters(self, letters: Iterable[DeadLetterRange]) -> list[StateBatch]:
        """Archive the records, which the queue has or cannot have. Returns the changes to store; they hold at once."""
        changes: list[StateBatch] = []
        for first, last, _, _ in letters:
            index = max(0, self.floor(first))
            for batch in self.batches[index : self.floor(last) + 1]:
                # Neighbours that another write has yet to take to the queue may share the state.
                for records in batch.cut_between(first, last):
                    if records.state is ARCHIVING:
                        records.transition_to(ARCHIVED)
                        records.is_rejected = False
                        self.delivery_complete_count += self._size_in_window(records)
                        changes.append(
                            StateBatch(records.first, records.last, ARCHIVED, records.delivery_count)
                        )
                batch.join()
        return joined(changes)

    # -- transitions that are stored first

    def begin(self, records: InFlightState, state: DeliveryState, changes: list[StateBatch]) -> None:
        """Begin a transition of acquired records; `complete` ends it."""
        if state is AVAILABLE:
            state = self._after_release(records)
        records.pending = state
        if state in FINAL:
            self.delivery_complete_count += self._size_in_window(records)
        changes.append(StateBatch(records.first, records.last, state, records.delivery_count))

    def release(self, member_id: str) -> list[StateBatch]:
        """Begin to release all records that a member has acquired. Returns the changes to store."""
        changes: list[StateBatch] = []
        for batch in self.batches:
            if all(records.member_id != member_id for records in batch.states):
                continue
            if batch.first < self.start_offset <= batch.last:
                batch.cut_between(self.start_offset, batch.last)
            for records in batch.states:
                if records.state is ACQUIRED and records.pending is None and records.member_id == member_id:
                    self.begin(records, AVAILABLE, changes)
        return joined(changes)

    def complete(self, changes: Iterable[StateBatch], *, is_stored: bool) -> bool:
        """End transitions that were begun: with ``is_stored`` they hold, otherwise the members still have the records.

        Returns whether the start offset has moved.
        """
        touched: dict[int, InFlightBatch] = {}
        for first, last, _, _ in changes:
            index = max(0, self.floor(first))
            for batch in self.batches[index : self.floor(last) + 1]:
                touched[batch.first] = batch
                for records in batch.overlapping(first, last):
                    self._complete(records, is_stored)
        for batch in touched.values():
            batch.join()
        return is_stored and self.advance()

    def _complete(self, records: InFlightState, is_stored: bool) -> None:
        pending = records.pending
        if pending is None:
            return
        if is_stored:
            records.transition_to(pending)
            if pending is AVAILABLE:
                self.may_have_available = True
            elif pending is ARCHIVING:
                self._note_dead_letters(records)
            return
        records.pending = None
        records.is_rejected = False
        if pending in FINAL:
            self.delivery_complete_count -= self._size_in_window(records)
        self.queue_lock_end(records.deadline, records.first, records.last)

    def _size_in_window(self, records: InFlightState) -> int:
        """Return how many of the records are not before the start offset."""
        return max(0, records.last - max(self.start_offset, records.first) + 1)

    # -- the start offset

    def advance(self) -> bool:
        """Move the start offset past the done records, and forget them. Returns whether it has moved."""
        batches = self.batches
        index = self.floor(self.start_offset)
        if index < 0 or not batches[index].at(self.start_offset).is_final:
            return False
        done, count = self._done_up_to()
        if done is None:
            return False
        if done == batches[-1].last:
            self.start_offset = max(self.start_offset, done + 1)
            self.end_offset = self.start_offset - 1
            batches.clear()
            self.firsts.clear()
            self.delivery_complete_count = 0
            return True
        index = self.floor(done)
        if done == batches[index].last:
            start = max(self.start_offset, self.firsts[index + 1])
            if self.has_gap:
                start = min(self.gap, start)
            index += 1
        else:
            start = done + 1
        self.start_offset = max(self.start_offset, start)
        self.delivery_complete_count -= count
        del batches[:index], self.firsts[:index]
        return True

    def _done_up_to(self) -> tuple[int | None, int]:
        """Return the last offset of the done records at the beginning, None if there are none, and their number."""
        done = None
        count = 0
        for batch in self.batches:
            if self.has_gap and batch.last >= self.gap:
                break
            for records in batch.states:
                if not records.is_final:
                    return done, count
                done = records.last
                count += self._size_in_window(records)
        return done, count

    def move_log_start(self, log_start_offset: int) -> None:
        """The log begins at that offset now: records before it that are available will never be delivered.

        Acquired ones stay with their members until they are acknowledged or their locks end.
        """
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset, self.end_offset = log_start_offset, log_start_offset - 1
            self.delivery_complete_count = 0
            return
        last = log_start_offset - 1
        for batch in self.batches:
            if batch.first > last:
                break
            for records in batch.overlapping(self.start_offset, last):
                if records.outcome in FINAL:
                    end = min(records.last, last)
                    self.delivery_complete_count -= end - max(records.first, self.start_offset) + 1
        if self.archive(self.start_offset, last, self.batches, AVAILABLE, counts=False):
            self.may_have_available = True
            for batch in self.batches:
                batch.join()
        self.start_offset = log_start_offset
        if self.gap >= 0:
            self.gap = max(self.gap, log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset - 1)

    def archive(
        self,
        first: int,
        last: int,
        batches: Iterable[InFlightBatch],
        state: DeliveryState,
        *,
        counts: bool = True,
    ) -> bool:
        """Archive the records from ``first`` to ``last`` that are, or are about to be, in ``state``; the caller joins
        the states of ``batches``. ``counts``: add them to `delivery_complete_count`. Returns whether there were any.
        """
        found = False
        for batch in batches:
            if batch.first > last:
                break
            if batch.last < first or not any(
                records.outcome is state for records in batch.overlapping(first, last)
            ):
                continue
            for records in batch.cut_between(first, last):
                if records.outcome is not state:
                    continue
                found = True
                if records.pending is None:
                    records.transition_to(ARCHIVED)
                else:
                    records.pending = ARCHIVED
                if counts:
                    self.delivery_complete_count += self._size_in_window(records)
        return found


def joined(changes: list[StateBatch]) -> list[StateBatch]:
    """Return the changes with neighbours in the same state as one."""
    result: list[StateBatch] = []
    for change in changes:
        if result:
            before = result[-1]
            if before.last_offset + 1 == change.first_offset and before[2:] == change[2:]:
                result[-1] = before._replace(last_offset=change.last_offset)
                continue
        result.append(change)
    return result
