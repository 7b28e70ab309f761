"""Which log is to be compacted next, and up to where; which of its segments become one.

Source: Kafka's ``LogCleanerManager`` (``grabFilthiestCompactedLog``, ``cleanableOffsets``,
``maxCompactionDelay``), ``LogToClean``, ``Cleaner.groupSegmentsBySize``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from oncelog.broker.log.indexes import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.segment import Segment

OFFSET_INDEX_ENTRY_BYTES = 8
TIME_INDEX_ENTRY_BYTES = 12


class Dirt:
    """What of a compacted log is dirty.

    ``first_dirty``: all below it has been cleaned. ``end``: the base offset of the first segment that must not be
    touched: the active one, one that reaches above the last stable offset, or one that is too young.
    ``must_clean``: whether something is dirty for longer than ``max.compaction.lag.ms``.
    """

    __slots__ = ("clean_bytes", "dirty_bytes", "end", "first_dirty", "log", "must_clean")

    def __init__(self, log: PartitionLog, cleaned_to: int | None, now_ms: int) -> None:
        """``cleaned_to``: the checkpoint, None where the log was never cleaned."""
        self.log = log
        start = log.log_start_offset
        valid = cleaned_to is not None and start <= cleaned_to <= log.log_end_offset
        self.first_dirty = first_dirty = cleaned_to if valid and cleaned_to is not None else start
        dirty = [segment for segment in segments_from(log.segments, first_dirty) if segment is not log.active]
        end = min(log.last_stable_offset, log.active.base_offset)
        lag_ms = log.config.min_compaction_lag_ms
        if lag_ms > 0:
            for segment in dirty:
                if segment.largest_timestamp > now_ms - lag_ms:
                    end = min(end, segment.base_offset)
                    break
        unclean = [it for it in segments_from(log.segments, max(first_dirty, end)) if it is not log.active]
        self.end = unclean[0].base_offset if unclean else log.active.base_offset
        self.clean_bytes = sum(it.size for it in log.segments[:-1] if it.base_offset < first_dirty)
        self.dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < self.end)
        since = [segment.rolling_timestamp for segment in dirty]
        oldest = min((timestamp for timestamp in since if timestamp > 0), default=now_ms)
        self.must_clean = oldest < now_ms - log.config.max_compaction_lag_ms

    @property
    def ratio(self) -> float:
        """The dirty share of what can be cleaned, in bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.must_clean and self.dirty_bytes:
            return True
        return self.dirty_bytes > 0 and self.ratio > self.log.config.min_cleanable_dirty_ratio


def segments_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """From the segment that holds the offset on (or the first)."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return segments[max(0, at - 1) :]


def group(segments: Sequence[Segment], segment_bytes: int, index_bytes: int, end: int) -> list[list[Segment]]:
    """Runs of neighbours that may become one segment: together no larger than one may be, log and indexes,
    and no wider in offsets than an index can say. ``end``: of all of them, exclusive."""
    groups: list[list[Segment]] = []
    size = offset_index = time_index = 0
    for at, segment in enumerate(segments):
        offset_bytes = segment.offset_index.entries * OFFSET_INDEX_ENTRY_BYTES
        time_bytes = segment.time_index.entries * TIME_INDEX_ENTRY_BYTES
        last = (segments[at + 1].base_offset if at + 1 < len(segments) else end) - 1
        if (
            groups
            and size + segment.size <= segment_bytes
            and offset_index + offset_bytes <= index_bytes
            and time_index + time_bytes <= index_bytes
            and (not segment.size or last - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = offset_index = time_index = 0
        size += segment.size
        offset_index += offset_bytes
        time_index += time_bytes
    return groups
