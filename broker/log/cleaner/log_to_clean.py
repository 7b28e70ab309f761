"""`LogToClean`: how far a log can be cleaned, and whether it should be; which segments are cleaned into one.

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


class LogToClean:
    """How much of a compacted log is dirty, and how far it can be cleaned.

    ``first_dirty_offset``: all below it has been cleaned. ``first_uncleanable_offset``: the base offset of the first
    segment that must not be touched: the active one, one that reaches above the last stable offset, or one younger
    than ``min.compaction.lag.ms``. ``must_clean``: something has been dirty for longer than ``max.compaction.lag.ms``.
    """

    def __init__(self, log: PartitionLog, checkpoint: int | None, now_ms: int) -> None:
        """``checkpoint``: the offset up to which the log was cleaned, None if it never was."""
        self.log = log
        start = log.log_start_offset
        if checkpoint is not None and start <= checkpoint <= log.log_end_offset:
            start = checkpoint
        self.first_dirty_offset = start
        dirty = [it for it in segments_from(log.segments, start) if it is not log.active]
        end = min(log.last_stable_offset, log.active.base_offset)
        lag_ms = log.config.min_compaction_lag_ms
        aged = log.env.time_gaps.aged
        if lag_ms > 0:
            for segment in dirty:
                if aged(segment.largest_timestamp) > now_ms - lag_ms:
                    end = min(end, segment.base_offset)
                    break
        uncleanable = segments_from(log.segments, max(start, end))[0]
        self.first_uncleanable_offset = end = uncleanable.base_offset
        self.clean_bytes = sum(it.size for it in log.segments[:-1] if it.base_offset < start)
        self.cleanable_bytes = sum(it.size for it in dirty if it.base_offset < end)
        dirty_since = (it.rolling_timestamp for it in dirty)
        oldest = min((aged(timestamp) for timestamp in dirty_since if timestamp > 0), default=now_ms)
        self.must_clean = oldest < now_ms - log.config.max_compaction_lag_ms

    @property
    def cleanable_ratio(self) -> float:
        """The cleanable bytes' share of clean and cleanable bytes together."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether there is enough to clean, or something has waited too long."""
        if self.must_clean and self.cleanable_bytes:
            return True
        return self.cleanable_bytes > 0 and self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def segments_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The segments from the one that holds the offset on."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return segments[max(0, at - 1) :]


def group(segments: Sequence[Segment], segment_bytes: int, index_bytes: int, end: int) -> list[list[Segment]]:
    """Group neighbouring segments that may become one: their logs and indexes together fit into the limits of
    one, and an index can store their offsets. ``end``: the offset after the last segment."""
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
