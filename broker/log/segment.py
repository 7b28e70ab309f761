"""A segment: one ``.log`` file with its indexes. Source: Kafka's ``LogSegment``."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.log.batches import find_offset, iterate_headers
from oncelog.broker.log.environment import LogEnvironment
from oncelog.broker.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from oncelog.broker.log.indexes import (
    INDEX_TAIL_BYTES,
    RELATIVE_OFFSET_MAX,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from oncelog.broker.seams.files import Buffer, File, FileSystem
from oncelog.wire.batch import BatchHeader
from oncelog.wire.errors import DecodeError

NO_TIMESTAMP = -1
UNKNOWN = -2
"""A timestamp that has not been read from the file yet."""


class Segment:
    """The batches from ``base_offset`` to the next segment's."""

    __slots__ = (
        "_file",
        "_files",
        "_index_due_above",
        "_index_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_rolling_timestamp",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "jitter_ms",
        "path",
        "size",
        "suffix",
        "synced_size",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
        jitter_ms: int = 0,
        new: bool = False,
        suffix: str = "",
    ) -> None:
        """``new``: make an empty segment; leftover files of that name are removed."""
        self._files = files
        self.path = f"{directory}/{offset_name(base_offset)}"
        self.suffix = suffix
        """What follows the usual file names: "", ``.cleaned``, ``.swap`` or ``.deleted``."""
        self.base_offset = base_offset
        self.jitter_ms = jitter_ms
        """It rolls this much earlier than ``segment.ms`` says, so that partitions do not all roll at once."""
        self.created_ms = now_ms
        self._index_interval = index_interval_bytes
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        self._file: File | None = None
        if new:
            self._create()
        self.size = 0 if new else files.size(self.log_path)
        """Bytes of the log file."""
        self.synced_size = -1 if new else 0
        """Bytes of the log file that are known to be on the disk; -1: not even its name is."""
        self._index_due_above = self.size + index_interval_bytes
        """The next batch that begins above this position gets index entries."""
        self._max_timestamp = NO_TIMESTAMP if new else UNKNOWN
        self._max_timestamp_offset = base_offset
        self._rolling_timestamp = NO_TIMESTAMP if new else UNKNOWN

    def _create(self) -> None:
        for path in self.paths():
            if self._files.exists(path):
                self._files.remove(path)
        self._file = self._files.open(self.log_path, create=True)
        self._offset_index = OffsetIndex(self._files, self._path_of(INDEX_SUFFIX), self.base_offset, new=True)
        self._time_index = TimeIndex(
            self._files, self._path_of(TIME_INDEX_SUFFIX), self.base_offset, new=True
        )

    def _path_of(self, kind: str) -> str:
        return f"{self.path}{kind}{self.suffix}"

    @property
    def log_path(self) -> str:
        return self._path_of(LOG_SUFFIX)

    def paths(self) -> list[str]:
        """The paths of all files that it may have."""
        return [self._path_of(kind) for kind in SEGMENT_SUFFIXES]

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.log_path)
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._offset_index = OffsetIndex(
                self._files, self._path_of(INDEX_SUFFIX), self.base_offset, new=False
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._time_index = TimeIndex(
                self._files, self._path_of(TIME_INDEX_SUFFIX), self.base_offset, new=False
            )
        return self._time_index

    @property
    def txn_index(self) -> TransactionIndex:
        if self._txn_index is None:
            self._txn_index = TransactionIndex(
                self._files, self._path_of(TXN_INDEX_SUFFIX), self.base_offset, new=False
            )
        return self._txn_index

    # Writing.

    def append(self, batch: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write a stamped batch. Raises OSError, and then nothing has changed.

        A full tail of index entries is written before the batch, so that nothing can fail after it.
        """
        position = self.size
        due = position > self._index_due_above
        if due and self.offset_index.tail_bytes >= INDEX_TAIL_BYTES:
            self.write_indexes()
        file = self._file
        (self.file if file is None else file).append(batch)
        self._note_batch(position, last_offset, max_timestamp, due)
        self.size = position + size

    def _note_batch(self, position: int, last_offset: int, max_timestamp: int, due: bool) -> None:
        if max_timestamp > self._max_timestamp and max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._rolling_timestamp == NO_TIMESTAMP and position == 0:
            self._rolling_timestamp = max_timestamp
        if due:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
            self._index_due_above = position + self._index_interval

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Index a batch that is in the file already. A recovery calls it for every batch, from the file's start
        or from where ``keep_indexes_below`` says. Raises OSError."""
        due = position > self._index_due_above
        if due and self.offset_index.tail_bytes >= INDEX_TAIL_BYTES:
            self.write_indexes()
        self._note_batch(position, header.last_offset, header.max_timestamp, due)

    def should_roll(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: TopicConfig
    ) -> bool:
        """Whether a batch must go to a new segment (Kafka: ``LogSegment.shouldRoll``)."""
        if self.size > config.segment_size - size:
            return True
        if self.size:
            first = self._rolling_timestamp
            if first == UNKNOWN:
                first = self.rolling_timestamp
            waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited > config.max_segment_ms - self.jitter_ms:
                return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        return self.size > self._index_due_above and self._indexes_full(config.segment_index_bytes)

    def _indexes_full(self, index_bytes_max: int) -> bool:
        return self.offset_index.is_full(index_bytes_max) or self.time_index.is_full(index_bytes_max)

    def seal(self) -> None:
        """No batch will follow: add the time index's last entry and write the indexes. Raises OSError."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write the index entries in memory to their files. Raises OSError, and then keeps them in memory."""
        self.offset_index.write()
        self.time_index.write()
        if self._txn_index is not None and self._txn_index.tail_bytes:
            self._txn_index.write()

    def unsynced_indexes(self) -> list[File]:
        """The index files that are not all on the disk. The caller must sync them: they count as synced.

        Entries in memory are written to them first. Raises OSError.
        """
        files = []
        for index in (self.offset_index, self.time_index, self.txn_index):
            if index.is_unflushed and (index.entries or index is not self._txn_index):
                files.append(index.write())
                index.unsynced = False
        return files

    def take_new_names(self) -> bool:
        """Whether the name of one of its files is not on the disk. The caller must sync the directory: it
        counts as synced."""
        name_unsynced = self.synced_size < 0
        for index in (self._offset_index, self._time_index, self._txn_index):
            if index is not None and index.name_unsynced:
                name_unsynced, index.name_unsynced = True, False
        return name_unsynced

    @property
    def is_unflushed(self) -> bool:
        """Whether part of it is not known to be on the disk."""
        return self.synced_size < self.size or any(
            index is not None and index.is_unflushed and (index.entries or index is not self._txn_index)
            for index in (self._offset_index, self._time_index, self._txn_index)
        )

    def forget_synced_indexes(self) -> None:
        """A flush was abandoned: the indexes may not be on the disk."""
        for index in (self._offset_index, self._time_index, self._txn_index):
            if index is not None:
                index.unsynced = index.name_unsynced = True

    # What is known of it.

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp in it (ms), -1 if there is none."""
        if self._max_timestamp == UNKNOWN:
            self._max_timestamp = self.time_index.last_timestamp
            self._max_timestamp_offset = self.time_index.last_offset
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that had the latest timestamp."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    @property
    def largest_timestamp(self) -> int:
        """The latest timestamp (ms); the time of the last write to the file if the records have none."""
        return self.max_timestamp if self.max_timestamp >= 0 else self._files.modified_ms(self.log_path)

    @property
    def rolling_timestamp(self) -> int:
        """The first batch's max timestamp (ms), from which ``segment.ms`` counts; -1 if there is none."""
        if self._rolling_timestamp == UNKNOWN:
            first = next(iterate_headers(self.file, 0, self.size), None)
            self._rolling_timestamp = NO_TIMESTAMP if first is None else first[1].max_timestamp
        return self._rolling_timestamp

    # Reading.

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """The first batch that holds ``offset`` or begins after it: (position, size, base offset), or None."""
        return find_offset(self.file, self.offset_index.lookup(offset)[1], self.size, offset)

    def position_of(self, offset: int) -> int:
        """The position at which the batches below ``offset`` end."""
        found = self.find(offset)
        return self.size if found is None else found[0]

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of its batches. Raises DecodeError."""
        return iterate_headers(self.file, position, self.size if end is None else end)

    def next_offset(self) -> int:
        """The offset after the last one in it. Raises DecodeError if the file does not end with a whole
        batch."""
        end = self.offset_index.lookup(RELATIVE_OFFSET_MAX + self.base_offset)[1]
        next_offset = self.base_offset
        for position, header in self.headers(end):
            end, next_offset = position + header.size, header.next_offset
        if end != self.size:
            raise DecodeError(f"{self.log_path} does not end with a whole batch")
        return next_offset

    # Cutting, renaming, closing.

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batches from the one that holds ``offset`` on (Kafka: ``LogSegment.truncateTo``). Returns how
        many bytes went. Raises OSError."""
        position = self.position_of(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        removed = self.size - position
        self.cut(position)
        self._index_due_above = position + self._index_interval
        self._load_max_timestamp()
        if not position:
            self.created_ms = now_ms
        return removed

    def cut(self, position: int) -> None:
        """Make the log file end at ``position``. The caller must cut the indexes. Raises OSError."""
        if position < self.size:
            self.file.truncate(position)
            self.size = position
            self.synced_size = min(self.synced_size, position)
        if not position:
            self._rolling_timestamp = NO_TIMESTAMP

    def forget_derived(self, position: int) -> None:
        """The indexes were cut: forget what was derived from them. The caller indexes the batches from
        ``position`` on again."""
        self._max_timestamp = self._rolling_timestamp = UNKNOWN
        self._index_due_above = position + self._index_interval

    def clear_indexes(self) -> None:
        """Empty the indexes, before all batches are indexed again."""
        self.offset_index.clear()
        self.time_index.clear()
        self.txn_index.clear()
        self._max_timestamp = self._rolling_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._index_due_above = self._index_interval

    def _load_max_timestamp(self) -> None:
        index = self.time_index
        self._max_timestamp, self._max_timestamp_offset = index.last_timestamp, index.last_offset
        for _, header in self.headers(self.offset_index.lookup(index.last_offset)[1]):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset

    def change_suffix(self, suffix: str) -> None:
        """Rename its files, the log file last. Raises OSError."""
        for kind in reversed(SEGMENT_SUFFIXES):
            source = self._path_of(kind)
            if self._files.exists(source):
                self._files.rename(source, f"{self.path}{kind}{suffix}")
        self.suffix = suffix
        self._tell_paths()

    def move(self, directory: str) -> None:
        """Take the new name of its directory."""
        self.path = f"{directory}/{offset_name(self.base_offset)}"
        self._tell_paths()

    def _tell_paths(self) -> None:
        for index, kind in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_INDEX_SUFFIX),
            (self._txn_index, TXN_INDEX_SUFFIX),
        ):
            if index is not None:
                index.path = self._path_of(kind)

    def close(self) -> None:
        """Give the descriptors back. Index entries in memory are lost: ``seal`` or ``write_indexes`` first."""
        for index in (self._offset_index, self._time_index, self._txn_index):
            if index is not None:
                index.close()
        if self._file is not None:
            self._file.close()
            self._file = None


def open_segment(
    env: LogEnvironment, directory: str, base_offset: int, config: TopicConfig, *, new: bool = False
) -> Segment:
    """The segment of a partition's directory that begins at ``base_offset``. Raises OSError."""
    jitter = min(config.segment_jitter_ms, config.max_segment_ms)
    return Segment(
        env.files,
        directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        now_ms=env.clock.now_ms(),
        jitter_ms=env.random.randrange(jitter) if jitter > 0 else 0,
        new=new,
    )
