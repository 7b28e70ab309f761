"""`Durability`: how much of a partition's log is on the disk, and bringing the rest there."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.broker.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from oncelog.broker.log.local_log import LocalLog
from oncelog.broker.log.partition_metadata import PARTITION_METADATA, encode_partition_metadata
from oncelog.broker.log.producers.state import ProducerStateManager
from oncelog.broker.log.segment import Segment
from oncelog.broker.seams.files import File, FileSystem

SNAPSHOT_INTERVAL_BYTES = 16 * 1024 * 1024
"""A flush takes a producer snapshot when this much was appended since the last one. That bounds how far below
the recovery point a recovery has to read."""


class FlushWork:
    """One flush of one partition, from ``PartitionLog.prepare_flush`` to ``PartitionLog.flushed``."""

    __slots__ = ("_directories", "_files", "_replace", "_targets", "bytes", "offset", "segments")

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
        """``directories``: to be synced, because of new names in them or of what ``replace`` changes."""
        self.offset = offset
        """All below it is durable when ``run`` has returned."""
        self.bytes = size
        """Bytes of log that this flush brings to the disk."""
        self.segments = segments
        """Segments, each with the size up to which its log file is then durable."""
        self._files = files
        self._targets = targets
        self._replace = replace
        self._directories = directories
        for file in targets:
            file.acquire()

    def run(self) -> None:
        """Bring it to the disk. It blocks: call it in a worker thread. Raises OSError, and then must not be
        tried again."""
        for file in self._targets:
            file.fsync()
        for path, data in self._replace:
            self._files.replace(path, data, sync_name=False)
        for directory in self._directories:
            self._files.sync_dir(directory)

    def release(self) -> None:
        """Let the files go, in the loop, once ``run`` has returned or raised."""
        targets, self._targets = self._targets, ()
        for file in targets:
            file.release()


class Durability:
    """Knows how much of one partition is on the disk: log, indexes, leader epochs, producer snapshots and
    ``partition.metadata``.

    Methods raise OSError.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_local",
        "_metadata_synced",
        "_producers",
        "_since_snapshot",
        "_topic_id",
        "_work",
        "changed",
        "due_bytes",
        "recovery_point",
        "unflushed_bytes",
    )

    def __init__(
        self,
        files: FileSystem,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerStateManager,
        topic_id: bytes,
        *,
        recovery_point: int,
        metadata_synced: bool,
    ) -> None:
        """``metadata_synced``: whether the directory and ``partition.metadata`` are on the disk."""
        self._files = files
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._topic_id = topic_id
        self.recovery_point = recovery_point
        """All below it is on the disk."""
        self.unflushed_bytes = 0
        """Appended since, or found by a recovery above the recovery point."""
        self.due_bytes = 1
        """The log tells the flusher when it has this many unflushed bytes. The flusher sets the number."""
        self.changed = not metadata_synced
        """Whether anything changed since the log was opened: otherwise a close has nothing to write."""
        self._metadata_synced = metadata_synced
        self._since_snapshot = 0
        """Bytes flushed since the last producer snapshot, less those that it covered while they were
        unflushed."""
        self._work: FlushWork | None = None

    def rolled(self) -> None:
        """The log has rolled, and took a producer snapshot."""
        self.changed = True
        self._since_snapshot = -self.unflushed_bytes

    def prepare_close(self, end: int) -> FlushWork | None:
        """As `prepare`, with what a start after a clean stop relies on: the last index entries, a snapshot,
        removed names."""
        self.abandon()
        if not self.changed:
            return None
        self._local.active.seal()
        self._local.snapshots.take(end, self._producers.snapshot(), floating=True)
        snapshot = self._local.snapshots.open(end)
        try:
            work = self.prepare(end, [] if snapshot is None else [snapshot], closes=True)
        finally:
            if snapshot is not None:
                snapshot.close()  # once the flush lets it go
        self.changed = False
        return work

    def prepare(self, end: int, more: Sequence[File] = (), *, closes: bool = False) -> FlushWork | None:
        """The flush of all below the log end offset ``end``; None if nothing is left to flush.

        Indexes belong to it: a recovery does not rebuild what is below the recovery point. ``more``: files to be
        synced, too. ``closes``: removed names are to be synced, too.
        """
        self.abandon()
        unflushed = self._unflushed_segments()
        if self._since_snapshot + self.unflushed_bytes >= SNAPSHOT_INTERVAL_BYTES:
            self._local.snapshots.take(end, self._producers.snapshot(), floating=True)
            self._since_snapshot = -self.unflushed_bytes
        if not unflushed and not self._epochs.changed and self._metadata_synced and not closes:
            self.recovery_point = end
            return None
        for segment in unflushed:
            segment.write_indexes()  # this may fail, so it comes before the first file is marked as synced
        targets = [*more, *(segment.file for segment in unflushed)]
        new_names = False
        for segment in unflushed:
            targets += segment.unsynced_indexes()
            new_names = segment.take_new_names() or new_names
        replace = self._changed_files()
        directory = self._local.directory
        self._work = FlushWork(
            self._files,
            end,
            self.unflushed_bytes,
            targets,
            [(segment, segment.size) for segment in unflushed],
            replace,
            [directory] if new_names or replace or closes else [],
        )
        return self._work

    def _unflushed_segments(self) -> list[Segment]:
        """Oldest first. They are the newest of the log: a segment is flushed no earlier than those before it."""
        found: list[Segment] = []
        for segment in reversed(self._local.segments):
            if segment.is_unflushed:
                found.insert(0, segment)
            elif segment is not self._local.active:
                break
        return found

    def _changed_files(self) -> list[tuple[str, bytes]]:
        """Path and content of the small files that differ from what is on the disk."""
        directory = self._local.directory
        replace = []
        if self._epochs.changed:
            replace.append((f"{directory}/{LEADER_EPOCH_CHECKPOINT}", self._epochs.encode()))
            self._epochs.changed = False
        if not self._metadata_synced:
            replace.append((f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(self._topic_id)))
            self._metadata_synced = True
        return replace

    def abandon(self) -> None:
        """Forget a flush whose end nobody reported (a stop cancelled it): all of it has to be done again."""
        if self._work is not None:
            self._work.release()
            self._work = None
            self.changed = True
            self._epochs.changed = True
            self._metadata_synced = False
            for segment in self._local.segments:
                segment.forget_synced_indexes()

    def truncated(self, end: int) -> None:
        """The log was cut at the offset ``end``, durably. A flush that is under way counts for what is left."""
        self.changed = True
        self.recovery_point = min(self.recovery_point, end)
        self._since_snapshot = SNAPSHOT_INTERVAL_BYTES  # the last snapshot may be gone
        work, segments = self._work, self._local.segments
        if work is not None:
            work.offset = min(work.offset, end)
            work.segments = [
                (segment, min(size, segment.size)) for segment, size in work.segments if segment in segments
            ]
            work.bytes = sum(size - min(size, max(0, segment.synced_size)) for segment, size in work.segments)
        self.unflushed_bytes = sum(segment.size - max(0, segment.synced_size) for segment in segments)

    def flushed(self, work: FlushWork, log_end_offset: int) -> None:
        """``work.run()`` has succeeded: note what is on the disk now."""
        work.release()
        self._work = None
        for segment, size in work.segments:
            segment.synced_size = max(segment.synced_size, min(size, segment.size))
        self.unflushed_bytes -= work.bytes
        self._since_snapshot += work.bytes
        self.recovery_point = max(self.recovery_point, min(work.offset, log_end_offset))
