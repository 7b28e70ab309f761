"""`LocalLog`: the segments of one partition, with their producer snapshots, and reading them.

It deals with files and offsets; `PartitionLog` adds producers, epochs, high watermark and waiters.

Source: Kafka's ``LocalLog``, ``LogSegments``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.log.batches import batch_size
from oncelog.broker.log.environment import LogEnvironment
from oncelog.broker.log.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from oncelog.broker.log.indexes import AbortedTxn
from oncelog.broker.log.producers.snapshots import ProducerSnapshots
from oncelog.broker.log.producers.state import ProducerStateManager
from oncelog.broker.log.results import FileRange, LogRead
from oncelog.broker.log.segment import Segment, open_segment

READ_POSITIONS_MAX = 64
"""Offsets whose file position a log remembers, so that a consumer that reads on needs no search."""

_NOTHING = b""


class LocalLog:
    """The segments of a partition, oldest first; the last is the active one. Methods raise OSError."""

    __slots__ = ("_env", "_positions", "active", "directory", "segments", "size", "snapshots")

    def __init__(
        self, env: LogEnvironment, directory: str, segments: list[Segment], snapshots: ProducerSnapshots
    ) -> None:
        self._env = env
        self.snapshots = snapshots
        self.directory = directory
        self.segments = segments
        self.active = segments[-1]
        self.size = sum(segment.size for segment in segments)
        """Bytes of all log files."""
        self._positions: dict[int, tuple[Segment, int]] = {}
        """Offset -> where the batches below it end."""

    # Reading.

    def read(
        self, offset: int, max_bytes: int, minimum_one: bool, up_to: int, log_end_offset: int
    ) -> LogRead:
        """See `PartitionLog.read`; ``offset`` is in the log, and below ``up_to``."""
        place = self._positions.get(offset)
        if place is None or (place[1] == place[0].size and place[0] is not self.active):
            # Unknown, or the end of a segment that has a successor now.
            place = self._locate(offset)
        if place is None:
            return LogRead(_NOTHING, up_to)
        segment, position = place
        end, end_offset = self._end_of(segment, up_to, log_end_offset)
        size = end - position
        if size <= 0:
            return LogRead(_NOTHING, up_to)
        if size > max_bytes:
            first = batch_size(segment.file, position)
            if first > max_bytes:
                if not minimum_one:
                    return LogRead(_NOTHING, offset)
                size = first
            else:
                size = max_bytes
            bound = segment.offset_index.upper_bound_offset(position + size)
            return LogRead(
                FileRange(segment.file, position, size),
                end_offset if bound is None else min(bound, end_offset),
            )
        self._remember(end_offset, segment, end)
        return LogRead(FileRange(segment.file, position, size), end_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and position of the first batch that ends at or after ``offset``; a segment may end with a gap."""
        for at in range(self._segment_at(offset), len(self.segments)):
            segment = self.segments[at]
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def _end_of(self, segment: Segment, up_to: int, log_end_offset: int) -> tuple[int, int]:
        """Position and offset (exclusive) at which a segment's batches below ``up_to`` end."""
        if segment is self.active:
            if up_to >= log_end_offset:
                return segment.size, log_end_offset
        else:
            following = self.segments[self._segment_at(segment.base_offset) + 1].base_offset
            if up_to >= following:
                return segment.size, following
        known = self._positions.get(up_to)
        if known is not None and known[0] is segment:
            return known[1], up_to
        end = segment.position_of(up_to)
        self._remember(up_to, segment, end)
        return end, up_to

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        positions[offset] = (segment, position)
        if len(positions) > READ_POSITIONS_MAX:
            del positions[next(iter(positions))]

    def remember_end(self, log_end_offset: int) -> None:
        """A read may end at this offset once more has been appended: remember its position."""
        self._remember(log_end_offset, self.active, self.active.size)

    def forget_positions(self) -> None:
        self._positions.clear()

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions with records from offset ``start`` to before ``end``."""
        found: list[AbortedTxn] = []
        for segment in self.segments[self._segment_at(start) :]:
            if segment.txn_index.entries:
                some, complete = segment.txn_index.collect(start, end)
                found += some
                if complete:
                    break
        return found

    # Segments come and go.

    def roll(self, log_end_offset: int, config: TopicConfig, producers: ProducerStateManager) -> bool:
        """Begin a new active segment at the log end offset. Returns False if the active segment is empty, and
        stays.

        After an OSError the active segment is unchanged. The error has a note if new files could not be
        removed.
        """
        if not self.active.size and self.active.base_offset == log_end_offset:
            return False
        self.active.seal()
        segment = open_segment(self._env, self.directory, log_end_offset, config, new=True)
        try:
            self.snapshots.take(log_end_offset, producers.snapshot())
        except OSError as error:
            self._discard(segment, error)
            raise
        self.segments.append(segment)
        self.active = segment
        return True

    def _discard(self, segment: Segment, reason: OSError) -> None:
        """Remove a segment that was never in the log: a start must not find a second one with its offsets."""
        segment.close()
        try:
            for path in segment.paths():
                if self._env.files.exists(path):
                    self._env.files.remove(path)
        except OSError as error:
            reason.add_note(f"and {segment.log_path} could not be removed: {error}")

    def boundary_at(self, offset: int) -> int:
        """``offset``, or where the batch begins that reaches across it. It is in the log."""
        found = self.segments[self._segment_at(offset)].find(offset)
        return offset if found is None else min(offset, found[2])

    def truncate_to(self, offset: int) -> None:
        """Remove all batches from ``offset`` on, which is no lower than the first segment's base offset, and within
        no batch (Kafka: ``LocalLog.truncateTo``).

        Durable when it returns: what was cut cannot be there again after new batches. Blocks for two syncs.
        """
        keep = self._segment_at(offset) + 1
        gone = self.segments[keep:]
        del self.segments[keep:]
        self.active = active = self.segments[-1]
        self._delete(gone[::-1])  # the newest first: a crash in between leaves no gap
        self.size -= active.truncate_to(offset, self._env.clock.now_ms())
        self.snapshots.remove_above(offset)
        self._positions.clear()
        active.file.fsync()
        self._env.files.sync_dir(self.directory)
        active.synced_size = active.size

    def start_at(self, offset: int, config: TopicConfig) -> None:
        """Remove all batches and begin anew at ``offset``, durably (Kafka: ``LocalLog.truncateFullyAndStartAt``).
        Blocks for a sync.
        """
        self._delete(self.segments[::-1])
        self.snapshots.remove_above(-1)
        self.active = open_segment(self._env, self.directory, offset, config, new=True)
        self.segments[:] = [self.active]
        self._env.files.sync_dir(self.directory)
        self.active.synced_size = 0

    def detach_oldest(self, count: int) -> list[Segment]:
        """Take the first ``count`` segments out of the log, which keeps at least one. The caller must `delete`
        them."""
        first = self.segments[count]
        if first.synced_size < 0:
            # If the new first segment's name were lost with the power, and the old ones with it, the offsets
            # would begin at 0 again.
            self._env.files.sync_dir(self.directory)
            first.synced_size = 0
        gone = self.segments[:count]
        del self.segments[:count]
        return gone

    def delete(self, segments: Sequence[Segment]) -> None:
        """Rename the files of detached segments, and schedule their deletion, so that readers can finish."""
        self._delete(segments)

    def _delete(self, segments: Sequence[Segment], keep_snapshot: int | None = None) -> None:
        paths = []
        for segment in segments:
            self.size -= segment.size
            segment.change_suffix(DELETED_SUFFIX)
            paths += [path for path in segment.paths() if self._env.files.exists(path)]
            segment.close()
            if segment.base_offset != keep_snapshot:
                self.snapshots.remove(segment.base_offset)
        self._positions.clear()
        self._env.schedule_delete(paths)

    def replace(self, new: Segment, old: Sequence[Segment]) -> None:
        """Put a cleaned segment in the place of those it was made from, and delete these.

        ``new`` has the suffix ``.cleaned``, its indexes are written, its files synced. It becomes a ``.swap`` file,
        durably, before the first of the old files goes: a start after a crash completes the replacement
        (Kafka: ``LocalLog.replaceSegments``). Blocks for two syncs of the directory.
        """
        assert new.suffix == CLEANED_SUFFIX
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == list(old)
        assert self.active not in old
        new.change_suffix(SWAP_SUFFIX)
        self._env.files.sync_dir(self.directory)
        self.segments[at : at + len(old)] = [new]
        self.size += new.size
        self._delete(old, keep_snapshot=new.base_offset)
        # The old names must be gone first: once `.swap` is dropped, nothing says that the new segment replaces them.
        self._env.files.sync_dir(self.directory)
        new.change_suffix("")

    def rename(self, directory: str) -> None:
        """Move the partition's directory."""
        self._env.files.rename(self.directory, directory)
        self.directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.move(directory)

    def close(self) -> None:
        """Give the descriptors back."""
        for segment in self.segments:
            segment.close()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
