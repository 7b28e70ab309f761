"""Acquisition: chooses the records for a member among those that were read, and their batches.

Whole record batches are acquired, unless the member asks for a limit (KIP-1206), or earlier deliveries have failed so
often that records are delivered in ever smaller batches, at last alone. Source: ``SharePartition.acquire``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.share.window.in_flight import ACQUIRED, AVAILABLE, InFlightBatch, InFlightState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.share.window.window import Window

Bounds = tuple[int, int]
"""The first and last offset of a record batch in the log."""

THROTTLE_DELIVERIES_MIN = 2
"""The least number of deliveries after which a batch is delivered in parts
(``MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT``).
"""
ALONE_LIMIT_MIN = 3
"""If the delivery count limit is at least this, the last delivery of a record is of that record alone."""


class Acquired(NamedTuple):
    """Neighbouring records that a member has acquired."""

    first: int
    last: int
    delivery_count: int


class Acquisition:
    """One member acquires records in one window, after one read of the log."""

    __slots__ = (
        "_batch_size",
        "_by_record",
        "_count",
        "_deadline",
        "_fetched",
        "_member_id",
        "_window",
        "acquired",
    )

    def __init__(
        self,
        window: Window,
        member_id: str,
        fetched: Sequence[Bounds],
        deadline: float,
        *,
        batch_size: int,
        by_record: bool,
    ) -> None:
        """``fetched``: the record batches that were read; at least as many as can be acquired. ``by_record``: the
        mode is record_limit.
        """
        self._window = window
        self._member_id = member_id
        self._fetched = fetched
        self._deadline = deadline
        self._batch_size = batch_size
        self._by_record = by_record
        self._count = 0
        self.acquired: list[Acquired] = []

    def acquire(self, fetch_offset: int, records_max: int) -> list[Acquired]:
        """Acquire up to ``records_max`` records, or more if they are in the same batch. ``fetch_offset`` is where the
        read began.
        """
        window, fetched = self._window, self._fetched
        if records_max <= 0 or not fetched or fetched[-1][1] < window.start_offset:
            return self.acquired
        last, room = self._within_limit(fetch_offset, records_max, fetched[-1][1])
        if room <= 0:
            return self.acquired
        first_read = fetched[0][0]
        self._archive_compacted(fetch_offset, first_read)
        index = window.floor(first_read)
        if index >= 0 and window.batches[index].last >= first_read:
            first = window.firsts[index]  # the read begins within this batch of the window
        else:
            first = max(first_read, window.start_offset)
        known = window.slice(min(first_read, first), last)
        if known:
            self._acquire_among(known, first, last, room)
        else:
            self._acquire_new(first, last, room)
        return self.acquired

    def _within_limit(self, fetch_offset: int, records_max: int, last: int) -> tuple[int, int]:
        """Return the last offset and how many records may be acquired, so that no more than the limit are in flight."""
        window = self._window
        room = min(records_max, window.limits.records_max - window.record_count)
        if room <= 0 and fetch_offset <= window.end_offset:
            # The window is full, but records in it are available again.
            return min(last, window.end_offset), min(records_max, window.end_offset - fetch_offset + 1)
        return last, room

    def _archive_compacted(self, fetch_offset: int, base: int) -> None:
        """Archive records that are no longer in the log: the window could never move past them."""
        window = self._window
        if not window.batches or fetch_offset >= base:
            return
        index = window.floor(fetch_offset)
        floor = fetch_offset
        if index >= 0 and window.batches[index].last >= fetch_offset:
            floor = window.firsts[index]
        batches = window.slice(floor, base - 1)
        if window.archive(fetch_offset, base - 1, batches, AVAILABLE):
            window.may_have_available = True
            for batch in batches:
                batch.join()

    def _acquire_among(self, known: list[InFlightBatch], first: int, last: int, room: int) -> None:
        """Acquire the available records of batches in the window, from ``first`` on, and what lies behind them."""
        window = self._window
        first_read = self._fetched[0][0]
        gap = first
        for batch in known:
            if self._count >= room:
                break
            if window.has_gap:
                if gap < batch.first:
                    self._acquire_new(gap, batch.first - 1, room - self._count)
                gap = batch.last + 1
                if self._count >= room:
                    break
            throttled = self._is_throttled(batch, first_read, last)
            if throttled and self._count:
                break
            is_inside = first_read <= batch.first and batch.last <= last
            if is_inside and not batch.is_split and not throttled and not self._exceeds(batch, room):
                if batch.whole.is_available:
                    self._take(batch.whole, [])
                    self.acquired.append(Acquired(batch.first, batch.last, batch.whole.delivery_count))
                continue
            if not batch.is_split:
                if not batch.whole.is_available:
                    continue
                batch.is_split = True
            before = self._count
            self._acquire_part(batch, first_read, last, room - self._count)
            if throttled and self._count > before:
                break
        else:  # no batch has ended the acquisition
            if self._count < room and known[-1].last < last:
                self._acquire_new(known[-1].last + 1, last, room - self._count)
        if self.acquired:
            self._move_gap(self.acquired[-1].last + 1)

    def _exceeds(self, batch: InFlightBatch, room: int) -> bool:
        return self._by_record and batch.size > room - self._count

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        """Whether records of the batch were delivered so often that they are delivered in smaller batches now."""
        counts = (
            records.delivery_count
            for records in (batch.overlapping(first, last) if batch.is_split else batch.states)
            if records.is_available
        )
        return max(counts, default=0) >= self._throttled_from()

    def _throttled_from(self) -> int:
        return max(THROTTLE_DELIVERIES_MIN, (self._window.limits.deliveries_max + 1) // 2)

    def _take(self, records: InFlightState, taken: list[InFlightState]) -> None:
        records.acquire(self._member_id, self._deadline)
        self._window.queue_lock_end(self._deadline, records.first, records.last)
        self._count += records.size
        taken.append(records)

    def _acquire_part(self, batch: InFlightBatch, first: int, last: int, room: int) -> None:
        """Acquire available records of a batch that are in the range."""
        deliveries_max = self._window.limits.deliveries_max
        throttled_from = self._throttled_from()
        throttled_max = -1
        count = 0
        taken: list[InFlightState] = []
        available = [
            (max(records.first, first), min(records.last, last))
            for records in batch.overlapping(first, last)
            if records.is_available
        ]
        for begin, end in available:
            delivered = batch.at(begin).delivery_count
            is_last = deliveries_max >= ALONE_LIMIT_MIN and delivered == deliveries_max - 1
            if is_last and count:
                break
            if delivered >= throttled_from and throttled_max < 0:
                throttled_max = max(1, batch.size >> (delivered - throttled_from + 1))
            size = 1 if is_last else end - begin + 1
            if self._by_record:
                size = min(size, room - count)
            if throttled_max > count:
                size = min(size, throttled_max - count)
            [records] = batch.cut_between(begin, begin + size - 1)
            self._take(records, taken)
            count += size
            if is_last or (self._by_record and count == room) or count == throttled_max:
                break
        for records in taken:
            before = self.acquired[-1] if self.acquired and records is not taken[0] else None
            if (
                before
                and before.last + 1 == records.first
                and before.delivery_count == records.delivery_count
            ):
                self.acquired[-1] = before._replace(last=records.last)
            else:
                self.acquired.append(Acquired(records.first, records.last, records.delivery_count))
        batch.join()

    # -- records that are not in the window yet

    def _acquire_new(self, first: int, last: int, room: int) -> None:
        """Acquire records that were never delivered, up to ``last``, or to the end of the batch that fills ``room``."""
        window = self._window
        if not window.batches:
            first = max(first, window.start_offset)
        if first > last:
            return
        reached = last
        if room < last - first + 1:
            reached = self._end_of_batch(first + room - 1)
            if window.has_gap:
                reached = min(reached, last)
        for begin, end in self._in_batches(first, reached):
            self._add(begin, end, room)
        if window.firsts[0] == first:
            window.start_offset = max(window.start_offset, first)
        window.end_offset = max(window.end_offset, reached)
        self._move_gap(self.acquired[-1].last + 1)

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the record batch with the offset, or the offset if there is none."""
        for base, last in self._fetched:
            if base > offset:
                break
            if offset <= last:
                return last
        return offset

    def _in_batches(self, first: int, last: int) -> list[Bounds]:
        """Return the range in batches of at least the wanted size that end where record batches end."""
        found: list[Bounds] = []
        size = self._batch_size
        if not self._by_record and last - first + 1 > size:
            for base, _ in self._fetched:
                if base > last:
                    break
                if base - first >= size:
                    found.append((first, base - 1))
                    first = base
        found.append((first, last))
        return found

    def _add(self, first: int, last: int, room: int) -> None:
        """Put a new batch into the window; with a limit of records its end may stay available."""
        window = self._window
        if last < first:  # batch_size is below 1: the response gets an empty range, the window nothing
            self.acquired.append(Acquired(first, last, 1))
            return
        batch = InFlightBatch(InFlightState(first, last, ACQUIRED, 1, self._member_id, self._deadline))
        end = last
        if self._by_record and last - first + 1 > room:
            end = first + room - 1
            batch.is_split = True
            for records in batch.cut_between(end + 1, last):
                records.transition_to(AVAILABLE)
                records.delivery_count = 0
            window.may_have_available = True
        index = window.floor(first) + 1
        window.firsts.insert(index, first)
        window.batches.insert(index, batch)
        window.queue_lock_end(self._deadline, first, end)
        self.acquired.append(Acquired(first, end, 1))
        self._count += end - first + 1

    def _move_gap(self, offset: int) -> None:
        """Note that the log was read up to the offset: gaps before it hold no records."""
        window = self._window
        if window.gap >= 0:
            window.gap = offset if window.has_gap and offset <= window.gap_end else -1


def without_aborted(window: Window, acquired: list[Acquired], aborted: Sequence[Bounds]) -> list[Acquired]:
    """Archive the acquired records of aborted transactions, and return the others. ``aborted``: their record batches,
    in order (``filterAbortedTransactionalAcquiredRecords``).
    """
    touched: dict[int, InFlightBatch] = {}
    for first, last in aborted:
        batches = window.slice(window.firsts[max(0, window.floor(first))], last)
        window.archive(first, last, batches, ACQUIRED)
        touched.update((batch.first, batch) for batch in batches)
    for batch in touched.values():
        batch.join()
    left: list[Acquired] = []
    at = 0
    for one in acquired:
        first = one.first
        while at < len(aborted) and aborted[at][1] < first:
            at += 1
        while at < len(aborted) and aborted[at][0] <= one.last:
            begin, end = aborted[at]
            if begin > first:
                left.append(one._replace(first=first, last=begin - 1))
            first = end + 1
            if end > one.last:
                break  # the next one may be in it, too
            at += 1
        if first <= one.last:
            left.append(one._replace(first=first))
    return left
