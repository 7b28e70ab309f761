"""Walking the batches of a log file by their headers, in small reads."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from oncelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, crc_matches, read_header
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.seams.files import Buffer, File

HEADER_WINDOW_BYTES = 16 * 1024
"""Bytes read at once while batches are small. After a batch larger than this only the next header is read."""

CHECK_WINDOW_BYTES = 1024 * 1024
"""Bytes read at once when every byte is checked."""

CRC_COVERS_FROM = 21
"""The CRC of a batch covers it from its attributes on."""

_offset_and_length = Struct(">qi")
_last_offset_delta = Struct(">i")
LAST_OFFSET_DELTA_AT = 23


def iterate_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every batch that lies whole between ``position`` and ``end``. Raises
    DecodeError for a header that cannot be one. A file that was truncated meanwhile ends sooner.
    """
    window, start, want = b"", position, HEADER_WINDOW_BYTES
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = file.pread(min(want, end - position), position), position, 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        size = header.batch_length + LOG_OVERHEAD
        if position + size > end:
            return
        yield position, header
        want = HEADER_SIZE if size >= HEADER_WINDOW_BYTES else HEADER_WINDOW_BYTES
        position += size


def read_fetched_batches(records: Buffer, leader_epoch: int) -> list[tuple[BatchHeader, memoryview]]:
    """The batches in the records of a Fetch response, each with its bytes, checked as a follower does (Kafka:
    ``UnifiedLog.analyzeAndValidateRecords``). See `append_as_follower` for those that are left out.

    Raises KafkaError: CORRUPT_MESSAGE for what is no batch or has another CRC; INVALID_RECORD where offsets fall.
    """
    data = memoryview(records)
    found: list[tuple[BatchHeader, memoryview]] = []
    at = end_offset = 0
    while len(data) - at >= HEADER_SIZE:
        try:
            header = read_header(data, at)
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        size = header.size
        if at + size > len(data) or header.partition_leader_epoch > leader_epoch:
            break
        if not crc_matches(data, at, header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The CRC of the batch at offset {header.base_offset} does not match",
            )
        if header.base_offset < end_offset or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"Offset {header.base_offset} comes after {end_offset - 1}"
            )
        found.append((header, data[at : at + size]))
        end_offset = header.next_offset
        at += size
    return found


def find_offset(file: File, position: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """The first batch from ``position`` on that holds ``offset`` or begins after it.

    Returns (position, size, base offset), or None if all batches before ``end`` end below ``offset``.
    """
    window, start, want = b"", position, HEADER_WINDOW_BYTES
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = file.pread(min(want, end - position), position), position, 0
            if len(window) < HEADER_SIZE:
                return None
        base_offset, length = _offset_and_length.unpack_from(window, at)
        (delta,) = _last_offset_delta.unpack_from(window, at + LAST_OFFSET_DELTA_AT)
        size = length + LOG_OVERHEAD
        if base_offset + delta >= offset:
            return position, size, base_offset
        want = HEADER_SIZE if size >= HEADER_WINDOW_BYTES else HEADER_WINDOW_BYTES
        position += max(size, HEADER_SIZE)
    return None


def batch_size(file: File, position: int) -> int:
    """Size in bytes of the batch that begins at ``position``."""
    length: int = _offset_and_length.unpack(file.pread(LOG_OVERHEAD, position))[1]
    return length + LOG_OVERHEAD


class BatchReader:
    """Reads the batches of a file one after the other and checks their bytes."""

    __slots__ = ("_end", "_file", "_size", "_start", "_window", "batch", "position", "problem")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._end = end
        self._window = memoryview(b"")
        self._start = position
        self._size = 0
        self.position = position
        """Where the batch begins that ``next`` returned, or at which it stopped."""
        self.problem = ""
        """Why there is no further batch; empty at the end."""
        self.batch = memoryview(b"")
        """The batch's bytes; empty if it is larger than a window."""

    def next(self) -> BatchHeader | None:
        """The next batch's header if the batch is whole and its CRC matches; else None, and ``problem`` says
        why."""
        self.position = position = self.position + self._size
        self._size = 0
        left = self._end - position
        if not left:
            return None
        try:
            if left < HEADER_SIZE:
                raise DecodeError(f"{left} bytes are not a batch")
            header = read_header(self._bytes(HEADER_SIZE))
            size = header.batch_length + LOG_OVERHEAD
            if size > left:
                raise DecodeError(f"a batch of {size} bytes, of which {left} are there")
            if self._crc(size) != header.crc:
                raise DecodeError("the CRC of the batch does not match")
        except DecodeError as error:
            self.problem = str(error)
            return None
        self._size = size
        return header

    def _bytes(self, size: int) -> memoryview:
        """The first bytes of the batch, from the window, which is refilled from there if it is too short."""
        at = self.position - self._start
        if at + size > len(self._window):
            want = min(CHECK_WINDOW_BYTES, self._end - self.position)
            self._window = memoryview(self._file.pread(want, self.position))
            self._start, at = self.position, 0
        return self._window[at : at + size]

    def _crc(self, size: int) -> int:
        if size <= CHECK_WINDOW_BYTES:
            self.batch = self._bytes(size)
            return crc32c(self.batch[CRC_COVERS_FROM:])
        self.batch = memoryview(b"")
        crc = 0
        for at in range(CRC_COVERS_FROM, size, CHECK_WINDOW_BYTES):
            crc = crc32c(self._file.pread(min(CHECK_WINDOW_BYTES, size - at), self.position + at), crc)
        return crc
