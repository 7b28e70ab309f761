"""Puts new state batches over those of before.

Source: ``PersisterStateBatchCombiner``. Unlike there, neighbours of one state are always joined; Kafka leaves some for
the next write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from oncelog.coordinator.share.state import StateBatch

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


def combine(current: list[StateBatch], new: Iterable[StateBatch], start_offset: int) -> None:
    """Put ``new`` over ``current``, and drop what is before ``start_offset`` (-1: nothing).

    ``current`` must be in order and without overlap, and is so afterwards. The cost follows the number of new batches
    and of those that they touch. Where two batches overlap, the higher delivery count holds, and among equal counts
    the higher delivery state.
    """
    if start_offset >= 0:
        _prune(current, start_offset)
    for batch in new:
        if batch.last_offset < start_offset:
            continue
        if batch.first_offset < start_offset:
            batch = batch._replace(first_offset=start_offset)
        begin = bisect_left(current, batch.first_offset - 1, key=_last)
        end = bisect_right(current, batch.last_offset + 1, begin, key=_first)
        current[begin:end] = _put_over(current[begin:end], batch)


def _prune(batches: list[StateBatch], start_offset: int) -> None:
    """Drop what is before ``start_offset``."""
    gone = bisect_left(batches, start_offset, key=_last)
    del batches[:gone]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = batches[0]._replace(first_offset=start_offset)


def _put_over(touched: Sequence[StateBatch], new: StateBatch) -> list[StateBatch]:
    """Return the batches that ``new`` overlaps or touches with it over them, neighbours of one state joined."""
    pieces: list[StateBatch] = []
    offset = new.first_offset
    for old in touched:
        if old.first_offset < new.first_offset:
            _add(pieces, old, old.first_offset, min(old.last_offset, new.first_offset - 1))
        _add(pieces, new, offset, min(old.first_offset - 1, new.last_offset))
        wins = max(old, new, key=_priority)
        _add(
            pieces,
            wins,
            max(old.first_offset, new.first_offset),
            min(old.last_offset, new.last_offset),
        )
        _add(pieces, old, max(old.first_offset, new.last_offset + 1), old.last_offset)
        offset = max(offset, old.last_offset + 1)
    _add(pieces, new, offset, new.last_offset)
    return pieces


def _add(pieces: list[StateBatch], of: StateBatch, first: int, last: int) -> None:
    """Add the offsets from ``first`` to ``last``, if there are any, with the state of a batch."""
    if first > last:
        return
    if pieces and pieces[-1].last_offset + 1 == first and _priority(pieces[-1]) == _priority(of):
        pieces[-1] = pieces[-1]._replace(last_offset=last)
    else:
        pieces.append(of._replace(first_offset=first, last_offset=last))


def _priority(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state
