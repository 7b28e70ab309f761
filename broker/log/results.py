"""Results of appending to a log and of reading it, and searches by timestamp.

Source: Kafka's ``LocalLog``, ``FileRecords``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.wire.records import iterate_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.broker.log.producers.entry import BatchMetadata
    from oncelog.broker.log.segment import Segment
    from oncelog.broker.seams.files import File
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.records import Record


class AppendResult:
    """Where a batch is in the log."""

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "must_flush",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        must_flush: bool,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 if the records keep the producer's timestamps."""
        self.log_start_offset = log_start_offset
        self.must_flush = must_flush
        """Whether the append may be acknowledged only after ``PartitionLog.flush`` has returned."""
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


def records_of(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    return iterate_records(segment.file.pread(header.size, position))


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """The first record from ``start_offset`` on whose timestamp is at least ``timestamp``.

    Kafka stops at the first segment with such a timestamp, even if all these records are below the log start
    offset, until that segment is deleted. This search goes on.
    """
    for segment in segments:
        if segment.largest_timestamp >= timestamp:
            offset = max(segment.time_index.lookup(timestamp)[1], start_offset)
            for position, header in segment.headers(segment.offset_index.lookup(offset)[1]):
                if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                    for record in records_of(segment, position, header):
                        if record.timestamp >= timestamp and record.offset >= start_offset:
                            return TimestampOffset(
                                record.timestamp, record.offset, header.partition_leader_epoch
                            )
    return None


def latest_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record that has the latest timestamp of all (ListOffsets' -3)."""
    latest = max(segments, key=lambda segment: segment.max_timestamp)  # the first of those
    timestamp = latest.max_timestamp
    start = latest.offset_index.lookup(latest.max_timestamp_offset)[1]
    for position, header in latest.headers(start):
        if header.max_timestamp == timestamp:
            for record in records_of(latest, position, header):
                if record.timestamp == timestamp:
                    return TimestampOffset(timestamp, record.offset, header.partition_leader_epoch)
            return None
    return None
