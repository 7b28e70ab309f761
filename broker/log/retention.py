"""Deleting old segments: by age, by size, and what lies below the log start offset.

Source: Kafka's ``UnifiedLog.deleteOldSegments``. As there, a segment goes only with all that are before it, and
only if it ends below the high watermark; an active segment that must go is rolled first.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.segment import Segment


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Delete the segments that the log's ``cleanup.policy`` and retention do not keep. Returns how many.

    With ``compact`` alone, or no policy, these are only segments below the log start offset. Raises OSError.
    """
    deleted = _delete(log, _below_log_start(log), "log start offset breach")
    if log.config.delete:
        if log.config.retention_bytes >= 0:
            deleted += _delete(log, _beyond_size(log), f"retention.bytes={log.config.retention_bytes} breach")
        if log.config.retention_ms >= 0:
            deleted += _delete(
                log, _older_than(log, now_ms), f"retention.ms={log.config.retention_ms} breach"
            )
    return deleted


def _below_log_start(log: PartitionLog) -> Callable[[Segment, Segment | None], bool]:
    start = log.log_start_offset
    return lambda segment, following: following is not None and following.base_offset <= start


def _beyond_size(log: PartitionLog) -> Callable[[Segment, Segment | None], bool]:
    excess = log.size - log.config.retention_bytes

    def is_beyond(segment: Segment, following: Segment | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return is_beyond


def _older_than(log: PartitionLog, now_ms: int) -> Callable[[Segment, Segment | None], bool]:
    retention_ms, aged = log.config.retention_ms, log.env.time_gaps.aged
    return lambda segment, following: now_ms - aged(segment.largest_timestamp) > retention_ms


def _delete(log: PartitionLog, is_due: Callable[[Segment, Segment | None], bool], reason: str) -> int:
    segments = log.segments
    count = 0
    for index, segment in enumerate(segments):
        following = segments[index + 1] if index + 1 < len(segments) else None
        end = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end or not is_due(segment, following):
            break
        if following is None and not segment.size:
            break  # the empty active segment stays
        count += 1
    if count and count == len(segments):  # there is always one segment
        try:
            log.roll()
        except OSError as error:
            log.write_failed(error)
            count = 0 if log.offline else count - 1  # on a full disk, deleting the others makes room
    if count:
        log.delete_oldest(count, reason)
    return count
