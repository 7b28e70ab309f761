"""`SegmentReader`: reads a segment's batches in order, and cold parts of the file in a thread."""

from __future__ import annotations

from functools import partial
from types import TracebackType

from oncelog.broker.log.segment import Segment
from oncelog.broker.seams.files import FileSystem
from oncelog.wire.batch import HEADER_SIZE, BatchHeader, crc_matches, read_header
from oncelog.wire.errors import DecodeError

READ_BYTES = 256 * 1024
"""Bytes of log that are read at once; more for a batch that is larger."""


class SegmentReader:
    """``with SegmentReader(…) as reader``, then `next` until it returns None. The file is held open
    meanwhile."""

    def __init__(self, files: FileSystem, segment: Segment, position: int = 0) -> None:
        self._files = files
        self._path = segment.log_path
        self._file = segment.file
        self._end = segment.size
        self._position = position
        self._data = b""
        self._start = position

    def __enter__(self) -> SegmentReader:
        self._file.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.release()

    async def next(self) -> tuple[BatchHeader, memoryview] | None:
        """The next batch; None at the end of the segment. Raises DecodeError if it is damaged, OSError."""
        position = self._position
        if position >= self._end:
            return None
        header = self._header()
        if header is None:
            await self._read(READ_BYTES, HEADER_SIZE)
            header = self._header()
            assert header is not None
        if position + header.size > self._start + len(self._data):
            await self._read(max(READ_BYTES, header.size), header.size)
        at = position - self._start
        if not crc_matches(self._data, at, header):
            raise DecodeError(f"{self._path} has a damaged batch at {position}")
        self._position += header.size
        return header, memoryview(self._data)[at : at + header.size]

    def _header(self) -> BatchHeader | None:
        at = self._position - self._start
        return read_header(self._data, at) if at + HEADER_SIZE <= len(self._data) else None

    async def _read(self, size: int, needed: int) -> None:
        file, position = self._file, self._position
        size = min(size, self._end - position)
        if file.is_cached(position, size):
            data = file.pread(size, position)
        else:
            data = await self._files.offload(partial(file.pread, size, position))
        if len(data) < needed:
            raise DecodeError(f"{self._path} ends inside the batch at {position}")
        self._data, self._start = data, position
