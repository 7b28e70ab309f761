"""`PartitionDirectory`: the files in a partition's directory, and their clean-up at a start.

Source: Kafka's ``LogLoader.removeTempFilesAndCollectSwapFiles`` and ``load``.
"""

from __future__ import annotations

from oncelog.broker.log.batches import iterate_headers
from oncelog.broker.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
    offset_of_name,
)
from oncelog.broker.log.partition_metadata import CorruptPartitionMetadata, read_partition_metadata
from oncelog.broker.log.producers.snapshots import SNAPSHOT_SUFFIX
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.files import FileSystem

_log = get_logger(__name__)

TMP_SUFFIX = ".tmp"
"""What an interrupted ``FileSystem.replace`` leaves."""


class PartitionDirectory:
    """The names in a partition's directory."""

    __slots__ = ("_files", "_names", "directory")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self.directory = directory
        self._names = set(files.listdir(directory))

    @property
    def base_offsets(self) -> list[int]:
        return self._offsets(LOG_SUFFIX)

    @property
    def snapshot_offsets(self) -> list[int]:
        return self._offsets(SNAPSHOT_SUFFIX)

    @property
    def topic_id(self) -> bytes | None:
        """The topic id in ``partition.metadata``; None if there is none, or the file is damaged."""
        try:
            return read_partition_metadata(self._files, self.directory)
        except CorruptPartitionMetadata as error:
            _log.warning("partition.metadata ignored", directory=self.directory, error=error)
            return None

    def has_indexes(self, base_offset: int) -> bool:
        """Whether a segment has its offset index and its time index."""
        name = offset_name(base_offset)
        return f"{name}{INDEX_SUFFIX}" in self._names and f"{name}{TIME_INDEX_SUFFIX}" in self._names

    def _offsets(self, suffix: str) -> list[int]:
        found = (offset_of_name(name) for name in self._names if name.endswith(suffix))
        return sorted(offset for offset in found if offset is not None)

    def clean_up(self) -> None:
        """Complete or undo interrupted replacements, and remove leftover files. Raises OSError.

        ``.deleted`` and ``.tmp`` files are removed. A ``.cleaned`` file means that a replacement was still
        being prepared: it is removed, and so are ``.swap`` files from its offset on. Any other ``.swap``
        segment is complete: it replaces all segments whose offsets it covers.
        """
        cleaned = [name for name in self._names if name.endswith(CLEANED_SUFFIX)]
        prepared_from = min((offset_of_name(name) or 0 for name in cleaned), default=None)
        for name in sorted(self._names):
            if name.endswith((DELETED_SUFFIX, TMP_SUFFIX, CLEANED_SUFFIX)) or (
                name.endswith(SWAP_SUFFIX)
                and prepared_from is not None
                and (offset_of_name(name) or 0) >= prepared_from
            ):
                self._remove(name)
        self._finish_swaps()
        bases = set(self.base_offsets)
        for name in sorted(self._names):
            if name.endswith(SEGMENT_SUFFIXES[1:]) and offset_of_name(name) not in bases:
                self._remove(name)

    def _finish_swaps(self) -> None:
        swaps = sorted(name for name in self._names if name.endswith(SWAP_SUFFIX))
        covered = [self._covered_by(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if covered:
            start, end = min(first for first, _ in covered), max(last for _, last in covered)
            for name in sorted(self._names):
                offset = offset_of_name(name)
                if offset is not None and not name.endswith(SWAP_SUFFIX) and start <= offset < end:
                    self._remove(name)
        for name in swaps:
            target = name.removesuffix(SWAP_SUFFIX)
            self._files.rename(f"{self.directory}/{name}", f"{self.directory}/{target}")
            self._names.discard(name)
            self._names.add(target)

    def _covered_by(self, name: str) -> tuple[int, int]:
        """A segment's base offset, and the offset after its last one."""
        start = end = offset_of_name(name) or 0
        file = self._files.open(f"{self.directory}/{name}")
        try:
            for _, header in iterate_headers(file, 0, file.size()):
                end = header.next_offset
        finally:
            file.close()
        return start, end

    def _remove(self, name: str) -> None:
        self._files.remove(f"{self.directory}/{name}")
        self._names.discard(name)
