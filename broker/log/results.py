"""Results of appending to a log and of reading it, and searches by timestamp.

Source: Kafka's ``LocalLog``, ``FileRecords``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.log.batches import iterate_headers
from oncelog.wire.records import check_record_size, records_of_in_steps, scan_front, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.broker.log.producers.entry import BatchMetadata
    from oncelog.broker.log.segment import Segment
    from oncelog.broker.seams.files import File
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.steps import Steps


class AppendResult:
    """Where a batch is in the log."""

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "must_wait",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        must_wait: bool,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 if the records keep the producer's timestamps."""
        self.log_start_offset = log_start_offset
        self.must_wait = must_wait
        """Whether a response with acks=all waits until the high watermark has passed the batch: for
        ``PartitionLog.flush``, in a replicated log also for followers."""
        self.duplicate = duplicate
        """Whether the batch was in the log already, at these offsets."""

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata, log_start_offset: int, high_watermark: int) -> AppendResult:
        """The result for a duplicate of ``batch``. As in Kafka, the log append time is that batch's timestamp,
        even if the producer set it."""
        waits = batch.last_offset >= high_watermark
        return cls(batch.first_offset, batch.last_offset, batch.timestamp, log_start_offset, waits, True)


class FileRange:
    """A range of bytes in a log file. It can be read until ``release``, even if the segment is deleted
    meanwhile."""

    __slots__ = ("_held", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        file.acquire()
        self._held = True
        self.file = file
        self.position = position
        self.size = size
        """In bytes."""

    def release(self) -> None:
        """Let the file go. A second call does nothing."""
        if self._held:
            self._held = False
            self.file.release()

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)


class LogRead:
    """The result of a read. ``records`` is ``b""`` if there is nothing to read yet; ``next_offset`` is above
    every offset in it."""

    __slots__ = ("next_offset", "records")

    def __init__(self, records: FileRange | bytes, next_offset: int) -> None:
        self.records = records
        self.next_offset = next_offset


class TimestampOffset(NamedTuple):
    timestamp: int
    """In ms."""
    offset: int
    leader_epoch: int
    """-1 if it is not known."""


HEADERS_PER_STEP = 64
RECORDS_PER_STEP = 256


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int, record_bytes_max: int
) -> Steps[TimestampOffset | None]:
    """Find the first record from ``start_offset`` on whose timestamp is at least ``timestamp``, in steps.

    Raises KafkaError (INVALID_RECORD) at a record of a compressed batch that has more than ``record_bytes_max`` bytes.
    Kafka stops at the first segment with such a timestamp, even if all these records are below the log start
    offset, until that segment is deleted. This search goes on.
    """
    for segment in tuple(segments):
        if segment.largest_timestamp >= timestamp:
            offset = max(segment.time_index.lookup(timestamp)[1], start_offset)
            for position, header in _headers(segment, segment.offset_index.lookup(offset)[1]):
                if header is None:
                    yield
                elif header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                    found = yield from _first_in_batch(
                        segment, position, header, timestamp, start_offset, record_bytes_max
                    )
                    if found is not None:
                        return found
    return None


def latest_timestamp(segments: Sequence[Segment], record_bytes_max: int) -> Steps[TimestampOffset | None]:
    """Find the first record that has the latest timestamp of all (ListOffsets' -3), in steps. Raises as
    `first_at_or_after`.
    """
    latest = max(segments, key=lambda segment: segment.max_timestamp)  # the first of those
    timestamp = latest.max_timestamp
    for position, header in _headers(latest, latest.offset_index.lookup(latest.max_timestamp_offset)[1]):
        if header is None:
            yield
        elif header.max_timestamp == timestamp:
            found = _first_in_batch(latest, position, header, timestamp, header.base_offset, record_bytes_max)
            return (yield from found)
    return None


def _headers(segment: Segment, start: int) -> Iterator[tuple[int, BatchHeader | None]]:
    """The position and header of each batch from position ``start`` on; None for a header where a step ends.

    Retention and compaction may remove the segment between two steps: its file stays readable.
    """
    file = segment.file
    file.acquire()
    try:
        for count, (position, header) in enumerate(iterate_headers(file, start, segment.size), 1):
            yield position, header
            if count % HEADERS_PER_STEP == 0:
                yield position, None
    finally:
        file.release()


def _first_in_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start_offset: int,
    record_bytes_max: int,
) -> Steps[TimestampOffset | None]:
    """Find the first record of a batch from ``start_offset`` on whose timestamp is at least ``timestamp``. Raises as
    `first_at_or_after`.
    """
    data = yield from records_of_in_steps(segment.file.pread(header.size, position), header)
    limit = len(data)
    may_be_too_large = header.codec != 0 and limit > record_bytes_max
    at = 0
    for count in range(header.record_count):
        if count % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
            yield
        if may_be_too_large:
            check_record_size(data, at, record_bytes_max)
        at, delta, offset_delta, _ = scan_front(data, at, limit)
        offset = header.base_offset + offset_delta
        of_record = (
            header.max_timestamp if header.is_log_append_time else wrap_int64(header.base_timestamp + delta)
        )
        if of_record >= timestamp and offset >= start_offset:
            return TimestampOffset(of_record, offset, header.partition_leader_epoch)
    return None
