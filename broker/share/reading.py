"""`BatchReader`: the record batches at an offset of a log, without reading more of them than a member can acquire.

The records themselves stay in the file; only headers are read, and the bytes around small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from oncelog.broker.log.indexes import AbortedTxn
from oncelog.broker.log.producers.replay import read_marker
from oncelog.broker.log.results import FileRange
from oncelog.wire.batch import CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT

FIRST_BYTES = 16 * 1024
"""Bytes of the first read."""
MORE_BYTES = 64 * 1024
"""Bytes of the next ones, while batches are small."""
SMALL_BATCH_BYTES = 8 * 1024
BATCH_HEAD_BYTES = 51
"""Bytes of a batch up to and with its producer id."""
INLINE_BYTES_MAX = 16 * 1024
"""Bytes of records up to which they are copied into the response."""

_head = Struct(">qi9xhi16xq").unpack_from


class ReadBatch(NamedTuple):
    """A record batch of the log."""

    first: int
    last: int
    position: int
    """In the bytes that were read."""
    size: int
    """In bytes."""
    attributes: int
    producer_id: int


class NotCached(Exception):  # noqa: N818 - an instruction, not an error
    """The bytes are on the disk only: ``range`` has to be read in a thread, and released."""

    def __init__(self, file_range: FileRange) -> None:
        super().__init__()
        self.range = file_range


class BatchReader:
    """The batches of what a read of the log found: ``records``, which the caller releases."""

    __slots__ = ("_chunk", "_chunk_at", "_may_block", "_records", "batches")

    def __init__(self, records: FileRange, *, may_block: bool) -> None:
        """``may_block``: read from the disk in this task if the bytes are not in the page cache."""
        self._records = records
        self._may_block = may_block
        self._chunk = b""
        self._chunk_at = 0
        self.batches: list[ReadBatch] = []

    def read(self, reach: int, next_offset: int) -> None:
        """Read the headers of batches, up to the one with offset ``reach``. Leave out a batch that is cut off by the
        end of the read, unless it is the first one, and one that begins at or after ``next_offset``.

        Raises NotCached, OSError.
        """
        size = self._records.size
        position = 0
        wanted = min(size, FIRST_BYTES)
        while position + BATCH_HEAD_BYTES <= size:
            at = position - self._chunk_at
            if at < 0 or at + BATCH_HEAD_BYTES > len(self._chunk):
                self._load(position, min(wanted, size - position))
                at = 0
            first, length, attributes, last_delta, producer_id = _head(self._chunk, at)
            length += LOG_OVERHEAD
            if first >= next_offset or (self.batches and (position + length > size or first > reach)):
                break
            self.batches.append(
                ReadBatch(first, first + last_delta, position, length, attributes, producer_id)
            )
            position += length
            wanted = MORE_BYTES if length < SMALL_BATCH_BYTES else BATCH_HEAD_BYTES

    def _load(self, position: int, size: int) -> None:
        file, start = self._records.file, self._records.position + position
        data = file.pread(size, start) if self._may_block else file.pread_cached(size, start)
        if data is None:
            raise NotCached(FileRange(file, start, size))
        self._chunk, self._chunk_at = data, position

    def aborted(self, transactions: Sequence[AbortedTxn]) -> list[tuple[int, int]]:
        """Return the bounds of the batches that belong to aborted transactions. Raises OSError."""
        waiting = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        producers: set[int] = set()
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if batch.producer_id < 0:
                continue
            while waiting and waiting[-1].first_offset <= batch.last:
                producers.add(waiting.pop().producer_id)
            if batch.attributes & CONTROL_BIT:
                if self._is_abort(batch):
                    producers.discard(batch.producer_id)
            elif batch.attributes & TRANSACTIONAL_BIT and batch.producer_id in producers:
                found.append((batch.first, batch.last))
        return found

    def _is_abort(self, batch: ReadBatch) -> bool:
        data = self._records.file.pread(batch.size, self._records.position + batch.position)
        marker = read_marker(memoryview(data))
        return marker is not None and marker.aborted

    def slice(self, first: int, last: int) -> FileRange | bytes:
        """Return the batches that reach from offset ``first`` to ``last``; all if there is only one.

        Raises OSError.
        """
        batches = self.batches
        begin, end = batches[0].position, batches[0].position + batches[0].size
        for batch in batches[1:]:
            if batch.first <= first:
                begin = batch.position
            elif batch.first > last:
                break
            end = batch.position + batch.size
        size = end - begin
        at = begin - self._chunk_at
        if at >= 0 and at + size <= len(self._chunk):
            return self._chunk[at : at + size]
        position = self._records.position + begin
        if size <= INLINE_BYTES_MAX:
            data = self._records.file.pread_cached(size, position)
            if data is not None:
                return data
        return FileRange(self._records.file, position, size)
