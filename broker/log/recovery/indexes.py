"""Checking and rebuilding the indexes of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from oncelog.broker.log.segment import Segment


def keep_indexes_below(segment: Segment, offset: int) -> int:
    """Before a recovery from the recovery point ``offset``: drop the index entries above it.

    Entries below it are sound, since indexes are flushed with the log. After them there may be nothing, zeros,
    or torn entries that look like earlier ones; those that do not match a batch are dropped, too. Returns the
    position from which the batches must be indexed again. Raises OSError.
    """
    index, time_index = segment.offset_index, segment.time_index
    index.keep(index.sound_entries(segment.size))
    index.truncate_to(offset)
    while index.entries and not _is_indexed(segment, *index.last):
        index.keep(index.entries - 1)
    time_index.keep(time_index.sound_entries(offset))
    while time_index.entries and not _is_timed(segment, time_index.last_timestamp, time_index.last_offset):
        time_index.keep(time_index.entries - 1)
    transactions = segment.txn_index
    transactions.truncate_to(offset)
    while transactions.entries and not _is_marker(segment, *transactions.last):
        transactions.drop_last()
    position = index.last[1]
    segment.forget_derived(position)
    return position


def _is_indexed(segment: Segment, offset: int, position: int) -> bool:
    """Whether the last offset of the batch at ``position`` is ``offset``."""
    try:
        header = next(segment.headers(position), None)
    except DecodeError:
        return False
    return header is not None and header[1].last_offset == offset


def _is_timed(segment: Segment, timestamp: int, offset: int) -> bool:
    """Whether the batch whose last offset is ``offset`` has that max timestamp."""
    found = segment.find(offset)
    try:
        header = None if found is None else next(segment.headers(found[0]), None)
    except DecodeError:
        return False
    return header is not None and header[1].last_offset == offset and header[1].max_timestamp == timestamp


def _is_marker(
    segment: Segment, producer_id: int, _first_offset: int, offset: int, _last_stable_offset: int
) -> bool:
    """Whether there is a control batch of that producer at ``offset``."""
    found = segment.find(offset)
    try:
        header = None if found is None else next(segment.headers(found[0]), None)
    except DecodeError:
        return False
    return header is not None and header[1].is_control and header[1].producer_id == producer_id


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the indexes from the batches. Raises DecodeError for a damaged batch, OSError."""
    segment.clear_indexes()
    for position, header in segment.headers():
        segment.index_batch(position, header)
    segment.seal()
