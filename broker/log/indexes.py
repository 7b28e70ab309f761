"""The three indexes beside a segment: by offset, by time, and of aborted transactions.

All are derived from the segment's batches. Entries have a fixed size. New ones stay in memory, in the tail, and
are written to the file when the tail is full (``INDEX_TAIL_BYTES``) and when the segment is rolled, flushed or
closed. If the process dies, recovery makes the lost ones again. Nothing else is held in memory: a look-up reads
a few entries of the file at a time.

Source: Kafka's ``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``, ``AbortedTxn``. Kafka preallocates index
files and cuts them when the segment is closed; ours only grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from oncelog.broker.seams.files import File, FileSystem
from oncelog.wire.errors import DecodeError

INDEX_TAIL_BYTES = 4096
"""The size at which the tail of an index is written to its file, in bytes."""

SEARCH_WINDOW_ENTRIES = 512
"""A binary search reads single entries until so few are left, then these at once."""

RELATIVE_OFFSET_MAX = 0x7FFFFFFF
"""An index stores offsets relative to its segment's base offset, as int32."""

NO_TIMESTAMP = -1

_int32 = Struct(">i")
_int64 = Struct(">q")
_offset_entry = Struct(">ii")
_time_entry = Struct(">qi")
_aborted_entry = Struct(">hqqqq")

ABORTED_TXN_VERSION = 0


class CorruptIndex(DecodeError):  # noqa: N818  # what it is, not that it is an error
    """An index file that is damaged; it must be rebuilt from the segment."""


class _Index:
    """A file of fixed-size entries, and the tail of entries that are still in memory."""

    __slots__ = (
        "_file",
        "_files",
        "_tail",
        "_written",
        "base_offset",
        "entries",
        "name_unsynced",
        "path",
        "unsynced",
    )

    ENTRY = _offset_entry

    def __init__(self, files: FileSystem, path: str, base_offset: int, *, new: bool) -> None:
        """``new``: begin empty; a file of that name is removed."""
        self._files = files
        self._file: File | None = None
        self._tail = bytearray()
        self.path = path
        self.base_offset = base_offset
        size = 0
        if files.exists(path):
            if new:
                files.remove(path)
            else:
                size = files.size(path)
        self._written = size // self.ENTRY.size
        self.entries = self._written
        """How many entries, those in the tail included."""
        self.unsynced = new
        """Whether part of the file may not be on the disk."""
        self.name_unsynced = False
        """Whether the file was created and its name may not be on the disk."""

    @property
    def tail_bytes(self) -> int:
        """Bytes that ``write`` would write."""
        return len(self._tail)

    @property
    def is_unflushed(self) -> bool:
        """Whether an entry may not be on the disk."""
        return self.unsynced or bool(self._tail)

    def write(self) -> File:
        """Write the tail to the file, which is created if it is missing. Raises OSError, and then keeps the
        tail."""
        file = self._open()
        if self._tail:
            end = self._written * self.ENTRY.size
            if file.size() != end:  # half an entry, from before a crash
                file.truncate(end)
            file.append(self._tail)
            self._written = self.entries
            self._tail.clear()
            self.unsynced = True
        return file

    def close(self) -> None:
        """Give the descriptor back. The tail is lost: ``write`` first."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def clear(self) -> None:
        self._truncate(0)

    def _open(self) -> File:
        if self._file is None:
            self.name_unsynced = self.name_unsynced or not self._files.exists(self.path)
            self._file = self._files.open(self.path, create=True)
        return self._file

    def _truncate(self, entries: int) -> None:
        """Keep the first ``entries`` entries."""
        if entries < self._written:
            self._open().truncate(entries * self.ENTRY.size)
            self._written = entries
            self._tail.clear()
            self.unsynced = True
        else:
            del self._tail[(entries - self._written) * self.ENTRY.size :]
        self.entries = entries

    def _at(self, slot: int) -> tuple[int, ...]:
        size = self.ENTRY.size
        if slot >= self._written:
            return self.ENTRY.unpack_from(self._tail, (slot - self._written) * size)
        return self.ENTRY.unpack(self._open().pread(size, slot * size))

    def _search(self, target: int, key: Struct, at: int) -> int:
        """The last slot whose key is at most ``target``; or -1. The key is a rising number, ``at`` bytes into
        an entry."""
        size = self.ENTRY.size
        low, high = 0, self.entries  # the first slot with a greater key is in low..high
        written = self._written
        block: bytes | bytearray = self._tail
        first = written
        if written and (high == written or key.unpack_from(block, at)[0] > target):
            high = written
            file = self._open()
            while high - low > SEARCH_WINDOW_ENTRIES:
                middle = (low + high) // 2
                if key.unpack(file.pread(key.size, middle * size + at))[0] <= target:
                    low = middle + 1
                else:
                    high = middle
            block, first = file.pread((high - low) * size, low * size), low
        else:
            low = written
        while low < high:
            middle = (low + high) // 2
            if key.unpack_from(block, (middle - first) * size + at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def all(self) -> Iterator[tuple[int, ...]]:
        """Yields every entry as it is stored, with relative offsets."""
        if self._written:
            yield from self.ENTRY.iter_unpack(self._open().pread(self._written * self.ENTRY.size, 0))
        yield from self.ENTRY.iter_unpack(bytes(self._tail))


class OffsetIndex(_Index):
    """``.index``: for some batches, their last offset (int32, relative) and their position in the file
    (int32)."""

    __slots__ = ("last_offset",)

    def __init__(self, files: FileSystem, path: str, base_offset: int, *, new: bool) -> None:
        super().__init__(files, path, base_offset, new=new)
        self.last_offset = base_offset
        """The last entry's offset; the base offset if there is none."""
        self._load_last()

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch at ``position`` whose last offset is ``offset``, above the last entry's."""
        assert not self.entries or offset > self.last_offset, (offset, self.last_offset)
        self._tail += _offset_entry.pack(offset - self.base_offset, position)
        self.entries += 1
        self.last_offset = offset

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (offset, position); (base offset, 0) if there is none."""
        if not self.entries:
            return self.base_offset, 0
        relative, position = self._at(self.entries - 1)
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or before ``offset`` as (offset, position); (base offset, 0) if there is none."""
        slot = self._search(offset - self.base_offset, _int32, 0)
        if slot < 0:
            return self.base_offset, 0
        relative, position = self._at(slot)
        return self.base_offset + relative, position

    def upper_bound_offset(self, position: int) -> int | None:
        """The offset of the first entry at or after a position, None if there is none. All offsets before that
        position are lower."""
        slot = self._search(position - 1, _int32, 4) + 1
        return None if slot >= self.entries else self.base_offset + self._at(slot)[0]

    def position_before(self, position: int) -> int:
        """The last position in the index that is at most ``position``, 0 if there is none."""
        slot = self._search(position, _int32, 4)
        return 0 if slot < 0 else self._at(slot)[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self._truncate(self._search(offset - self.base_offset - 1, _int32, 0) + 1)
        self._load_last()

    def clear(self) -> None:
        super().clear()
        self._load_last()

    def is_full(self, index_bytes_max: int) -> bool:
        return self.entries >= index_bytes_max // _offset_entry.size

    def sound_entries(self, segment_bytes: int) -> int:
        """How many entries, from the first on, are sound: they rise in offset and position and lie in a segment
        of that size."""
        good, last_relative, last_position = 0, -1, -1
        for relative, position in self.all():
            if relative <= last_relative or position <= last_position or position >= segment_bytes:
                break
            good, last_relative, last_position = good + 1, relative, position
        return good

    def keep(self, entries: int) -> None:
        """Keep the first ``entries`` entries."""
        self._truncate(min(entries, self.entries))
        self._load_last()

    def _load_last(self) -> None:
        self.last_offset = self.base_offset + (self._at(self.entries - 1)[0] if self.entries else 0)


class TimeIndex(_Index):
    """``.timeindex``: a timestamp (int64, ms) and the last offset (int32, relative) of the batch that had it.

    An entry says that no batch up to this one has a later timestamp.
    """

    __slots__ = ("last_offset", "last_timestamp")

    ENTRY = _time_entry

    def __init__(self, files: FileSystem, path: str, base_offset: int, *, new: bool) -> None:
        super().__init__(files, path, base_offset, new=new)
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset
        self._load_last()

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is later than the last entry's. The offset may not be below the last
        entry's."""
        if timestamp > self.last_timestamp:
            assert not self.entries or offset >= self.last_offset, (offset, self.last_offset)
            self._tail += _time_entry.pack(timestamp, offset - self.base_offset)
            self.entries += 1
            self.last_timestamp = timestamp
            self.last_offset = offset

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or before ``timestamp`` as (timestamp, offset); (-1, base offset) if there is
        none."""
        slot = self._search(timestamp, _int64, 0)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        found, relative = self._at(slot)
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self._truncate(self._search(offset - self.base_offset - 1, _int32, 8) + 1)
        self._load_last()

    def clear(self) -> None:
        super().clear()
        self._load_last()

    def is_full(self, index_bytes_max: int) -> bool:
        """Whether only one slot is left, which is for the entry that a roll adds."""
        return self.entries >= index_bytes_max // _time_entry.size - 1

    def sound_entries(self, end_offset: int) -> int:
        """How many entries, from the first on, are sound: they rise in time, do not fall in offset, and lie
        below ``end_offset``."""
        good, last_timestamp, last_relative = 0, NO_TIMESTAMP, -1
        for timestamp, relative in self.all():
            if timestamp <= last_timestamp or relative < max(last_relative, 0):
                break
            if self.base_offset + relative >= end_offset:
                break
            good, last_timestamp, last_relative = good + 1, timestamp, relative
        return good

    def keep(self, entries: int) -> None:
        self._truncate(min(entries, self.entries))
        self._load_last()

    def _load_last(self) -> None:
        if self.entries:
            timestamp, relative = self._at(self.entries - 1)
            self.last_timestamp, self.last_offset = timestamp, self.base_offset + relative
        else:
            self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset


class AbortedTxn(NamedTuple):
    """An aborted transaction's part in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker."""


class TransactionIndex(_Index):
    """``.txnindex``: the aborted transactions whose marker is in the segment, in the order of the markers.

    An entry is an int16 version (0) and the int64s of ``AbortedTxn``. The file is created with the
    first entry.
    """

    __slots__ = ()

    ENTRY = _aborted_entry

    @property
    def is_unflushed(self) -> bool:
        """Whether an entry, or the removal of the last one, may not be on the disk. Without entries there need be no
        file."""
        return super().is_unflushed and (bool(self.entries) or self._files.exists(self.path))

    def append(self, aborted: AbortedTxn) -> None:
        self._tail += _aborted_entry.pack(ABORTED_TXN_VERSION, *aborted)
        self.entries += 1

    def transactions(self) -> Iterator[AbortedTxn]:
        """Raises CorruptIndex for an entry of another version."""
        if self.entries:
            for version, *fields in self.all():
                if version != ABORTED_TXN_VERSION:
                    raise CorruptIndex(f"{self.path} has an entry of version {version}")
                yield AbortedTxn(*fields)

    def collect(self, start: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions with records from ``start`` to before ``end``, and whether no later segment can have
        more of them."""
        found = []
        for aborted in self.transactions():
            if aborted.last_offset >= start and aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return found, True
        return found, False

    @property
    def last(self) -> AbortedTxn:
        """The last entry; there is one."""
        return AbortedTxn(*self._at(self.entries - 1)[1:])

    def drop_last(self) -> None:
        self._truncate(self.entries - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above ``offset``."""
        for slot, aborted in enumerate(self.transactions()):
            if aborted.last_offset >= offset:
                self._truncate(slot)
                return
