"""``.snapshot`` files: the producer state of a partition as of the offset in the file's name.

Big-endian: int16 version (1); uint32 CRC-32C of all that follows; int32 count; then for each producer
producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32 (last offset minus
first of the last batch), timestamp int64 (ms), coordinator epoch int32, first offset of the open transaction
int64; -1 for none. Source: Kafka's ``ProducerStateManager``, ``ProducerSnapshot``.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from oncelog.broker.log.file_names import offset_name
from oncelog.broker.seams.files import File, FileSystem
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_head = Struct(">hI")
_count = Struct(">i")
_entry = Struct(">qhiqiqiq")


class CorruptSnapshot(DecodeError):  # noqa: N818  # what it is, not that it is an error
    """A snapshot file that is cut short, damaged, or of another version."""


class SnapshotEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    rows = [_entry.pack(*entry) for entry in entries]
    body = _count.pack(len(rows)) + b"".join(rows)
    return _head.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The producers in a snapshot file. Raises CorruptSnapshot."""
    if len(data) < _head.size + _count.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc = _head.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc32c(memoryview(data)[_head.size :]) != crc:
        raise CorruptSnapshot("CRC does not match")
    (count,) = _count.unpack_from(data, _head.size)
    rows = memoryview(data)[_head.size + _count.size :]
    if len(rows) != count * _entry.size:
        raise CorruptSnapshot(f"{len(rows)} bytes for {count} producers")
    return [SnapshotEntry(*fields) for fields in _entry.iter_unpack(rows)]


class ProducerSnapshots:
    """The snapshot files of one partition.

    A roll takes one at the new segment's base offset; it stays as long as that segment. A flush or a close
    takes one inside a segment ("floating"); the next one replaces it.
    """

    __slots__ = ("_files", "directory", "floating", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self.directory = directory
        self.offsets = sorted(offsets)
        self.floating: int | None = None
        """The offset of the one inside a segment, None if there is none."""

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"

    @property
    def last(self) -> int:
        """The offset of the newest, -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def take(self, offset: int, entries: Iterable[SnapshotEntry], *, floating: bool = False) -> None:
        """Write one, unless there is one at or above ``offset``. Raises OSError, and then leaves no new
        file."""
        if offset > max(self.last, 0):
            self._write(offset, entries)
            before, self.floating = self.floating, offset if floating else None
            if before is not None:
                self.remove(before)
        elif offset == self.floating and not floating:
            self.floating = None

    def retake(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Write one, even over an existing one, which may be damaged. Raises OSError."""
        if offset > 0:
            self._write(offset, entries)

    def _write(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        path = self.path(offset)
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.append(encode_snapshot(entries))
        except OSError:
            file.close()
            self._files.remove(path)
            if offset in self.offsets:
                self.offsets.remove(offset)
            raise
        file.close()
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def read(self, offset: int) -> list[SnapshotEntry]:
        """Raises CorruptSnapshot."""
        return decode_snapshot(self._files.read_bytes(self.path(offset)))

    def open(self, offset: int) -> File | None:
        """The file of a snapshot, to be synced; None if there is no such snapshot. Raises OSError."""
        return self._files.open(self.path(offset)) if offset in self.offsets else None

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            if offset == self.floating:
                self.floating = None
            self.offsets.remove(offset)
            self._files.remove(self.path(offset))

    def remove_above(self, offset: int) -> None:
        for above in [held for held in self.offsets if held > offset]:
            self.remove(above)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Keep those at a segment's base offset, and the newest other one if no segment begins after it."""
        bases = set(base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            self.floating = strays.pop()
        for offset in strays:
            self.remove(offset)
