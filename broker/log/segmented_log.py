"""A partition's segments and what belongs to them: rolling, flushing, deleting, cutting, closing.

``PartitionLog`` adds what clients see. Source: Kafka's ``LocalLog`` and the same parts of ``UnifiedLog``.
"""

from __future__ import annotations

from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import TYPE_CHECKING

from oncelog.broker.log.environment import WaiterSet
from oncelog.broker.log.flush_work import FlushWork
from oncelog.broker.log.leader_epochs import LEADER_EPOCH_CHECKPOINT
from oncelog.broker.log.partition_metadata import PARTITION_METADATA, encode_partition_metadata
from oncelog.broker.log.reads import READ_POSITIONS_MAX
from oncelog.broker.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, Segment, open_segment
from oncelog.broker.logs import get_logger
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.environment import LogEnvironment
    from oncelog.broker.log.loaded_log import Loaded
    from oncelog.broker.seams.files import File

_log = get_logger(__name__)

SNAPSHOT_INTERVAL_BYTES = 16 * 1024 * 1024
"""A flush takes a snapshot of the producer state when so much was appended since the last one: it bounds what
a recovery has to walk below the recovery point."""


SHORTAGES = frozenset((ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM))
"""Errors that say that there is no room, descriptor or memory now: what is in the log is sound all the same."""


def is_shortage(error: BaseException) -> bool:
    """Whether it says nothing about the files, and may be over at the next try."""
    return isinstance(error, OSError) and error.errno in SHORTAGES


class SegmentedLog:
    """The segments of one partition, the last of which is active, and how far they are on the disk."""

    __slots__ = (
        "_metadata_synced",
        "_positions",
        "_producers_complete",
        "_since_snapshot",
        "_touched",
        "_work",
        "active",
        "config",
        "deleted",
        "directory",
        "env",
        "epochs",
        "flush_due_bytes",
        "high_watermark",
        "is_closing",
        "last_flush_ms",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "size",
        "snapshots",
        "topic",
        "topic_id",
        "unflushed_bytes",
        "waiters",
    )

    def __init__(
        self,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        loaded: Loaded,
    ) -> None:
        self.env = env
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.segments = loaded.segments
        self.active = loaded.segments[-1]
        self.size = sum(segment.size for segment in loaded.segments)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_end_offset
        self.last_stable_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        """All below it is on the disk."""
        self.unflushed_bytes = 0
        self.flush_due_bytes = 1
        """The flusher wants to know when so many bytes are not flushed; it sets this."""
        self.last_flush_ms = env.clock.now_ms()
        self.offline = False
        """A write or an fsync failed: every request gets KAFKA_STORAGE_ERROR."""
        self.deleted = False
        self.is_closing = False
        """A flush brings to the disk what `close` would, too."""
        self.waiters = WaiterSet()
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self._producers_complete = loaded.producers_complete
        self._metadata_synced = loaded.metadata_synced
        self._since_snapshot = 0
        self._touched = not loaded.metadata_synced
        """Whether anything changed since it was opened: if not, a close has nothing to write."""
        self._work: FlushWork | None = None
        self._positions: dict[int, tuple[Segment, int]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    def _publish_high_watermark(self, offset: int) -> None:
        raise NotImplementedError

    def check_alive(self) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION."""
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self.topic}-{self.partition} is offline"
            )
        if self.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # When a file operation fails.

    def fail(self, error: OSError) -> None:
        """A write or an fsync failed, so what is on the disk is not known: take the log offline."""
        self._abandon_work()
        if not self.offline:
            self.offline = True
            _log.error("log is offline", topic=self.topic, partition=self.partition, error=error)
            self.waiters.notify(self)  # type: ignore[arg-type]

    def write_failed(self, error: OSError) -> None:
        """An append or a roll failed and was undone. A full disk is no reason to stop: there may be room
        again. Where it could not be undone (the error has a note), or for any other error, it is."""
        if getattr(error, "__notes__", None):
            self.fail(error)
        else:
            self.storage_error(error)

    def storage_error(self, error: OSError) -> KafkaError:
        """What to answer when the files cannot be used; the log goes offline unless it is a shortage."""
        if error.errno in SHORTAGES:
            about = {"topic": self.topic, "partition": self.partition}
            self.env.lines.write(_log.warning, "shortage", about, error=error)
        else:
            self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    # Segments.

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment, not in the log yet. Raises OSError; then there is none."""
        return open_segment(self.env, self.directory, base_offset, self.config, new=True)

    def roll(self) -> Segment:
        """Make a new active segment that begins at the log end offset, and return it.

        An active segment that is empty stays. Raises OSError, and then the active segment is what it was.
        """
        before = self.active
        offset = self.log_end_offset
        if not before.size and before.base_offset == offset:
            return before
        before.seal()
        segment = self.new_segment(offset)
        try:
            self.snapshots.take(offset, self.producers.snapshot())
        except OSError:
            self._discard(segment)
            raise
        self._touched = True
        self._since_snapshot = -self.unflushed_bytes
        self.segments.append(segment)
        self.active = segment
        self.env.flusher.due(self)  # type: ignore[arg-type]
        _log.debug("rolled a segment", topic=self.topic, partition=self.partition, offset=offset)
        return segment

    def _discard(self, segment: Segment) -> None:
        """Remove a segment that never was in the log: one with its offsets must not be found by a start."""
        segment.close()
        try:
            for path in segment.paths():
                if self.env.files.exists(path):
                    self.env.files.remove(path)
        except OSError as error:
            self.fail(error)

    def delete_oldest(self, count: int, reason: str) -> None:
        """Remove the first ``count`` segments: the log start offset rises to the next one's base offset.

        None may reach above the high watermark. Where it is all of them, a new one is made first. The files
        are renamed at once and removed later, so that whoever reads them can go on. Raises OSError.
        """
        if count == len(self.segments):
            self.roll()
            count = min(count, len(self.segments) - 1)
        if not count:
            return
        first = self.segments[count]
        if first.synced_size < 0:
            # If the new first segment's name were lost with the power, and the old ones with it, the offsets
            # would begin at 0 again.
            self.env.files.sync_dir(self.directory)
            first.synced_size = 0
        start = first.base_offset
        assert start <= self.high_watermark, (start, self.high_watermark)
        gone = self.segments[:count]
        del self.segments[:count]
        self._touched = True
        self.raise_log_start(start)
        _log.info(
            "deleting segments",
            topic=self.topic,
            partition=self.partition,
            segments=count,
            log_start_offset=start,
            reason=reason,
        )
        self._remove(gone)

    def raise_log_start(self, offset: int) -> None:
        """Records below ``offset`` are gone."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self._positions.clear()
            self._publish_high_watermark(max(self.high_watermark, offset))

    def _remove(self, segments: Sequence[Segment], keep_snapshot: int | None = None) -> None:
        """Rename the files of segments that are not in the log any more, and have them deleted."""
        paths = []
        for segment in segments:
            self.size -= segment.size
            segment.change_suffix(DELETED_SUFFIX)
            paths += [path for path in segment.paths() if self.env.files.exists(path)]
            segment.close()
            if segment.base_offset != keep_snapshot:
                self.snapshots.remove(segment.base_offset)
        self._positions.clear()
        self.env.schedule_delete(paths)

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> None:
        """Put a cleaned segment in the place of those it was made from, which are deleted.

        ``new`` has the suffix ``.cleaned``, its indexes are written, its files synced. It is a ``.swap`` file,
        and that on the disk, before any of the old files goes: a start after a crash completes what was begun
        (Kafka: ``LocalLog.replaceSegments``). Blocks for two syncs of the directory. Raises OSError.
        """
        assert new.suffix == CLEANED_SUFFIX
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == list(old)
        assert self.active not in old
        new.change_suffix(SWAP_SUFFIX)
        self.env.files.sync_dir(self.directory)
        self.segments[at : at + len(old)] = [new]
        self.size += new.size
        self._remove(old, keep_snapshot=new.base_offset)
        # That the old ones are gone first: without their `.swap` nobody would know what they are.
        self.env.files.sync_dir(self.directory)
        new.change_suffix("")
        self._touched = True

    # The disk.

    def prepare_flush(self) -> FlushWork | None:
        """What has to reach the disk so that all of the log is there; None where it is. One at a time.

        Indexes are among it: a recovery does not make again what is below the recovery point. Raises KafkaError
        (KAFKA_STORAGE_ERROR) where they cannot be written.
        """
        try:
            return self.prepare_close() if self.is_closing else self._prepare_flush()
        except OSError as error:
            raise self.storage_error(error) from error

    def prepare_close(self) -> FlushWork | None:
        """What has to reach the disk, derived files too, for a start that trusts it; None where it is there.

        One at a time, as `prepare_flush`. What is changed afterwards is `close`'s to write. Raises OSError.
        """
        self._abandon_work()
        if not self._touched or self.offline or self.deleted:
            return None
        self.active.seal()
        self.snapshots.take(self.log_end_offset, self.producers.snapshot(), floating=True)
        snapshot = self.snapshots.open(self.log_end_offset)
        try:
            work = self._prepare_flush([] if snapshot is None else [snapshot], closes=True)
        finally:
            if snapshot is not None:
                snapshot.close()  # once the flush lets it go
        self._touched = False
        return work

    def _prepare_flush(self, more: Sequence[File] = (), *, closes: bool = False) -> FlushWork | None:
        """``more``: files to be synced, too. ``closes``: names of files that are gone, too."""
        self._abandon_work()
        end = self.log_end_offset
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.is_dirty:
                dirty.insert(0, segment)
            elif segment is not self.active:
                break  # those before it are older still
        if self._since_snapshot + self.unflushed_bytes >= SNAPSHOT_INTERVAL_BYTES:
            self.snapshots.take(end, self.producers.snapshot(), floating=True)
            self._since_snapshot = -self.unflushed_bytes
        if not dirty and not self.epochs.dirty and self._metadata_synced and not closes:
            self.recovery_point = end
            return None
        for segment in dirty:
            segment.write_indexes()  # before anything counts as on its way
        targets = [*more, *(segment.file for segment in dirty)]
        new_names = False
        for segment in dirty:
            targets += segment.unsynced_indexes()
            new_names = segment.take_unnamed() or new_names
        replace = []
        if self.epochs.dirty:
            replace.append((f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", self.epochs.encode()))
            self.epochs.dirty = False
        if not self._metadata_synced:
            replace.append(
                (f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(self.topic_id))
            )
            self._metadata_synced = True
        self._work = FlushWork(
            self.env.files,
            end,
            self.unflushed_bytes,
            targets,
            [(segment, segment.size) for segment in dirty],
            replace,
            [self.directory] if new_names or replace or closes else [],
        )
        if end > self.high_watermark:
            self._remember(end, self.active, self.active.size)
        return self._work

    def _abandon_work(self) -> None:
        """A flush was begun of which nobody said how it ended (a stop cancelled it): it has to be done anew."""
        if self._work is not None:
            self._work.release()
            self._work = None
            self._touched = True
            self.epochs.dirty = True
            self._metadata_synced = False
            for segment in self.segments:
                segment.forget_synced_indexes()

    def flushed(self, work: FlushWork) -> None:
        """``work.run()`` has returned: move the recovery point, and the high watermark if it waited."""
        work.release()
        self._work = None
        for segment, size in work.segments:
            segment.synced_size = max(segment.synced_size, min(size, segment.size))
        self.unflushed_bytes -= work.bytes
        self._since_snapshot += work.bytes
        self.recovery_point = max(self.recovery_point, min(work.offset, self.log_end_offset))
        self.last_flush_ms = self.env.clock.now_ms()
        if not self.offline and self.high_watermark < self.log_end_offset:
            waits = self.log_end_offset - self.recovery_point >= self.config.flush_messages
            reached = self.recovery_point if waits else self.log_end_offset
            if reached > self.high_watermark:
                self._publish_high_watermark(reached)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """That the batches below ``offset`` end there."""
        positions = self._positions
        positions[offset] = (segment, position)
        if len(positions) > READ_POSITIONS_MAX:
            del positions[next(iter(positions))]

    def close(self) -> None:
        """Bring everything to the disk, derived files too, for a start that trusts it. It blocks.

        Raises OSError: the stop was not a clean one then. A log that is offline or deleted is only closed.
        """
        try:
            work = self.prepare_close()
            if work is not None:
                work.run()
                self.flushed(work)
        finally:
            for segment in self.segments:
                segment.close()

    def rename(self, directory: str) -> None:
        """Move the partition's directory. Raises OSError."""
        self.env.files.rename(self.directory, directory)
        self.directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.move(directory)

    def mark_deleted(self) -> None:
        """The topic is gone: whoever waits or asks gets UNKNOWN_TOPIC_OR_PARTITION."""
        self.deleted = True
        self.waiters.notify(self)  # type: ignore[arg-type]
