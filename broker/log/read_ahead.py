"""Reading ahead of a recovery in a thread, so that its steps in the loop do not wait for the disk.

The generators that walk a log yield a `ColdRange` for each part that is not in the page cache before they read it. A
task that steps them has a thread read it first; a caller that cannot wait just goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.broker.log.batches import CHECK_WINDOW_BYTES
from oncelog.broker.log.results import FileRange
from oncelog.broker.seams.files import File, FileSystem

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""Bytes that a thread reads at once."""

MARGIN_BYTES = 2 * CHECK_WINDOW_BYTES
"""The next part of the file is probed this far before the end of the last one. That is more than a step reads,
unless a batch is larger than a window."""


class ColdRange(NamedTuple):
    """A part of a file that is not in the page cache; `size` in bytes."""

    file: File
    position: int
    size: int

    async def read(self, files: FileSystem) -> None:
        """Read it in a thread. Raises OSError, also if the file was closed meanwhile."""
        held = FileRange(*self)
        try:
            await files.offload(held.read)
        finally:
            held.release()


class ReadAhead:
    """Probes a file during one walk through it, up to ``end``."""

    __slots__ = ("_end", "_file", "_known")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._known = position
        self._end = end

    def before(self, position: int) -> Iterator[ColdRange]:
        """Yields what should be read ahead before the walk goes on from ``position``, if anything."""
        start = max(self._known, position)
        if position + MARGIN_BYTES > self._known and start < self._end:
            size = min(READ_AHEAD_BYTES, self._end - start)
            self._known = start + size
            if not self._file.is_cached(start, size):
                yield ColdRange(self._file, start, size)


Progress = int | ColdRange
"""What a step of a recovery yields: the bytes of log that it read, or the cold part that comes next."""
