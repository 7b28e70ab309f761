"""What has to reach the disk so that a partition survives a loss of power up to some offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.log.segment import Segment
    from oncelog.broker.seams.files import File, FileSystem


class FlushWork:
    """One flush of one partition, from ``PartitionLog.prepare_flush`` to ``PartitionLog.flushed``."""

    __slots__ = ("_directories", "_files", "_replace", "_targets", "bytes", "epochs", "offset", "segments")

    def __init__(
        self,
        files: FileSystem,
        offset: int,
        size: int,
        targets: Sequence[File],
        segments: Sequence[tuple[Segment, int]],
        replace: Sequence[tuple[str, bytes]],
        directories: Sequence[str],
    ) -> None:
        """``directories`` are those whose names are not on the disk, or are changed by ``replace``."""
        self.offset = offset
        """All below it is durable when ``run`` has returned."""
        self.bytes = size
        """Of log that were not known to be on the disk."""
        self.segments = segments
        """Whose log file is durable then, up to which size."""
        self._files = files
        self._targets = targets
        self._replace = replace
        self._directories = directories
        for file in targets:
            file.acquire()

    def run(self) -> None:
        """Do it. It blocks: call it in a worker thread. Raises OSError, and then must not be tried again."""
        for file in self._targets:
            file.fsync()
        for path, data in self._replace:
            self._files.replace(path, data, sync_name=False)
        for directory in self._directories:
            self._files.sync_dir(directory)

    def release(self) -> None:
        """In the loop, once ``run`` has returned or raised."""
        targets, self._targets = self._targets, ()
        for file in targets:
            file.release()
