"""Reading ahead what is not in the page cache, so that a recovery's steps in the loop do not wait for the disk.

The generators that walk a log say what is cold before they come to it (`Cold`); who steps them from a task has a thread
read it first, and who cannot wait steps on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.log.batches import CHECK_WINDOW_BYTES
from oncelog.broker.log.results import FileRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.seams.files import File, FileSystem

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""Bytes that a thread reads at once."""

MARGIN_BYTES = 2 * CHECK_WINDOW_BYTES
"""How far before the end of what is known to be warm the next bytes are asked about: further than a step reads, but for
batches that are larger than a window."""


class Cold(NamedTuple):
    """A part of a file that is not in the page cache; `size` in bytes."""

    file: File
    position: int
    size: int

    async def read(self, files: FileSystem) -> None:
        """In a thread. Raises OSError, also where the file was closed meanwhile."""
        held = FileRange(*self)
        try:
            await files.offload(held.read)
        finally:
            held.release()


class ReadAhead:
    """One walk through a file, up to ``end``."""

    __slots__ = ("_end", "_file", "_known")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._known = position
        self._end = end

    def before(self, position: int) -> Iterator[Cold]:
        """What is to be read ahead before the walk goes on from there, if anything is."""
        start = max(self._known, position)
        if position + MARGIN_BYTES > self._known and start < self._end:
            size = min(READ_AHEAD_BYTES, self._end - start)
            self._known = start + size
            if not self._file.is_cached(start, size):
                yield Cold(self._file, start, size)


Progress = int | Cold
"""What a step of a recovery gives: the bytes of log that it took, or what comes next and is cold."""
