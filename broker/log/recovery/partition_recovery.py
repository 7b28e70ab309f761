"""`PartitionRecovery`: recovers a partition that was not closed cleanly (``broker/log/opening.py`` opens one
that was).

It checks every batch from the recovery point on, cuts the log at the first bad one, and derives from these
batches what is derived (indexes, producer state, leader epochs). Source: Kafka's ``LogLoader``,
``LogSegment.recover``. Kafka rebuilds the segment that holds the recovery point from its start; this begins at
the recovery point, since indexes are flushed with the log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.log.batches import BatchReader
from oncelog.broker.log.environment import LogEnvironment
from oncelog.broker.log.file_names import DELETED_SUFFIX
from oncelog.broker.log.indexes import RELATIVE_OFFSET_MAX
from oncelog.broker.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from oncelog.broker.log.loaded_log import LoadedLog
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.replay import (
    RECOVERY_STEP_BYTES,
    load_newest_snapshot,
    replay,
    replay_producers,
)
from oncelog.broker.log.producers.snapshots import ProducerSnapshots
from oncelog.broker.log.producers.state import ProducerStateManager
from oncelog.broker.log.read_ahead import ColdRange, Progress, ReadAhead
from oncelog.broker.log.recovery.indexes import keep_indexes_below
from oncelog.broker.log.recovery.partition_directory import PartitionDirectory
from oncelog.broker.log.segment import Segment, open_segment
from oncelog.broker.logging.logs import get_logger
from oncelog.wire.batch import BatchHeader
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import ZERO_UUID

_log = get_logger(__name__)


class Cut(NamedTuple):
    """The part of a log file that a recovery removed."""

    path: str
    position: int
    """Where it was cut; 0 if the whole file was removed."""
    bytes: int
    reason: str


class PartitionRecovery:
    """The recovery of one partition, in steps. ``log`` exists once ``step`` has returned True."""

    def __init__(
        self,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        log_start_offset: int,
        recovery_point: int,
        topic_id: bytes | None = None,
        high_watermark: int | None = None,
    ) -> None:
        """``log_start_offset``, ``recovery_point`` and ``high_watermark`` (None for a log with one replica) come from
        the checkpoints. No file is touched yet."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.log: PartitionLog
        self.cuts: list[Cut] = []
        self.truncated = False
        """Whether the log has lost records: its leader epoch must rise, so that readers notice."""
        self.checked_bytes = 0
        self.cold: ColdRange | None = None
        """What the next step would have to wait for; the caller may have it read ahead."""
        self._has_removed = False
        self._env = env
        self._config = config
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._topic_id = topic_id
        self._high_watermark = high_watermark
        self._segments: list[Segment] = []
        self._epochs: LeaderEpochs
        self._producers = ProducerStateManager()
        self._snapshots: ProducerSnapshots
        self._steps = self._run()

    def step(self, max_bytes: int = RECOVERY_STEP_BYTES) -> bool:
        """Check about ``max_bytes`` of log, or stop where the next part is `cold`. Returns whether the recovery
        is done.

        Raises OSError, CorruptCheckpoint, CorruptPartitionMetadata; the next call then begins anew.
        """
        self.cold = None
        try:
            for made in self._steps:
                if isinstance(made, ColdRange):
                    self.cold = made
                    return False
                max_bytes -= made
                if max_bytes <= 0:
                    return False
        except (OSError, DecodeError):
            self._begin_anew()
            raise
        return True

    def close(self) -> None:
        """Close the files of a recovery that is given up. A second call does nothing."""
        for segment in self._segments:
            segment.close()
        self._segments = []

    def _begin_anew(self) -> None:
        """Cuts that were made stay in `cuts`."""
        self.close()
        self._producers = ProducerStateManager()
        self.checked_bytes = 0
        self._steps = self._run()

    def _run(self) -> Iterator[Progress]:
        env, directory = self._env, self.directory
        found = PartitionDirectory(env.files, directory)
        found.clean_up()
        self._epochs = LeaderEpochs.load(env.files, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._snapshots = ProducerSnapshots(env.files, directory, found.snapshot_offsets)
        self._segments = segments = [
            open_segment(env, directory, base, self._config) for base in found.base_offsets
        ]
        self._drop_deleted()
        # The segment that ends at the recovery point got its last index entries when it was rolled, perhaps
        # after the flush: it is walked again, too.
        first = max(0, sum(segment.base_offset < self._recovery_point for segment in segments) - 1)
        while first and not segments[first].size:
            # A failed roll may have left an empty segment, while its offsets went to the segment before.
            first -= 1
        for segment in segments[:first]:
            segment.synced_size = segment.size
            if not found.has_indexes(segment.base_offset):
                yield from self._rebuild(segment)
        end_offset = yield from self._check(
            first, has_indexes=not segments or found.has_indexes(segments[first].base_offset)
        )
        yield from self._finish(end_offset, found)

    def _drop_deleted(self) -> None:
        """Delete segments below the log start offset: after a loss of power they may be there again,
        damaged."""
        count = sum(segment.base_offset <= self._log_start_offset for segment in self._segments[1:])
        self._drop(self._segments[:count])
        del self._segments[:count]

    def _rebuild(self, segment: Segment) -> Iterator[Progress]:
        """Rebuild the indexes of a segment below the recovery point, one of which is missing."""
        segment.clear_indexes()
        ahead = ReadAhead(segment.file, 0, segment.size)
        yield from ahead.before(0)
        try:
            for position, header in segment.headers():
                segment.index_batch(position, header)
                yield header.size if header.size < RECOVERY_STEP_BYTES else 1
                yield from ahead.before(position + header.size)
        except DecodeError as error:
            _log.error("a flushed segment is damaged", segment=segment.log_path, reason=error)
        segment.seal()

    # Checking.

    def _check(self, first: int, *, has_indexes: bool) -> Generator[Progress, None, int]:
        """Check the segments from number ``first`` on. Returns the log end offset."""
        segments = self._segments
        if not segments:
            return self._log_start_offset
        start = segments[first]
        start.synced_size = -1
        try:
            if not has_indexes:
                start.clear_indexes()
            position, offset = yield from self._walk_to_recovery_point(start)
        except DecodeError:
            # Even the flushed part is damaged: check this segment from its start.
            start.clear_indexes()
            position, offset = 0, start.base_offset
        self._epochs.truncate_from_end(offset)  # later epochs come back from the batches
        # Of a transaction that ended above the watermark, a snapshot above it does not tell where it began.
        up_to = offset if self._high_watermark is None else min(offset, self._high_watermark)
        begin = load_newest_snapshot(self._env, self._snapshots, self._producers, up_to)
        try:
            yield from replay_producers(segments, self._producers, max(begin, 0), offset)
        except DecodeError as error:
            _log.error("flushed batches are damaged", directory=self.directory, reason=error)
        for at in range(first, len(segments)):
            segment = segments[at]
            if at > first:
                if not self._follows(segment, offset):
                    self._drop_from(at, f"the segments before it reach to offset {offset}")
                    break
                segments[at - 1].seal()
                segment.synced_size = -1
                segment.clear_indexes()
                if segment.base_offset > offset:
                    # Only a snapshot knows what producers wrote in the gap.
                    load_newest_snapshot(
                        self._env, self._snapshots, self._producers, segment.base_offset, offset
                    )
                self._snapshots.retake(segment.base_offset, self._producers.snapshot())
                position, offset = 0, segment.base_offset
            reason, position, offset = yield from self._check_segment(segment, position, offset)
            if position < segment.size:
                self._cut(segment, position, reason)
                self._drop_from(at + 1, "what is before it is gone")
                break
        return offset

    def _walk_to_recovery_point(self, segment: Segment) -> Generator[Progress, None, tuple[int, int]]:
        """Index the segment that holds the recovery point, up to it.

        Returns the position and base offset of the first batch at or above it. Raises DecodeError.
        """
        for index in (segment.offset_index, segment.time_index):  # these are read whole
            file = index.write()
            yield from ReadAhead(file, 0, file.size()).before(0)
        end = keep_indexes_below(segment, self._recovery_point)
        offset = segment.base_offset
        ahead = ReadAhead(segment.file, end, segment.size)
        yield from ahead.before(end)
        for position, header in segment.headers(end):
            # A batch whose offset falls back lies after the recovery point: the check will find it.
            if header.base_offset >= self._recovery_point or header.base_offset < offset:
                break
            segment.index_batch(position, header)
            end, offset = position + header.size, header.next_offset
            if offset >= self._recovery_point:
                break
            yield header.size if header.size < RECOVERY_STEP_BYTES else 1
            yield from ahead.before(end)
        return end, max(offset, segment.base_offset)

    def _follows(self, segment: Segment, offset: int) -> bool:
        """Whether a segment may come after a log that ends, with a whole batch, at ``offset``.

        Compaction leaves gaps. So may a loss of power: it takes the unsynced end of a segment but not the next
        segment, or brings back some of the segments that were being deleted. As in Kafka, both sides of the gap
        stay, since either may have been flushed.
        """
        if segment.base_offset > offset and not self._config.compact:
            self.truncated = True
            _log.warning(
                "records are missing",
                directory=self.directory,
                from_offset=offset,
                next_offset=segment.base_offset,
            )
        return segment.base_offset >= offset

    def _check_segment(
        self, segment: Segment, position: int, offset: int
    ) -> Generator[Progress, None, tuple[str, int, int]]:
        """Check the batches from ``position`` on. The first may not be below ``offset``.

        Returns what is wrong, at which position, and the offset after the last good batch.
        """
        reader = BatchReader(segment.file, position, segment.size)
        ahead = ReadAhead(segment.file, position, segment.size)
        yield from ahead.before(position)
        while (header := reader.next()) is not None:
            if header.base_offset < offset or header.last_offset_delta < 0:
                return f"offset {header.base_offset} after {offset - 1}", reader.position, offset
            if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                return f"offset {header.last_offset} is too far from the segment's", reader.position, offset
            segment.index_batch(reader.position, header)
            self._derive(segment, reader, header)
            offset = header.next_offset
            self.checked_bytes += header.size
            yield header.size
            yield from ahead.before(reader.position + header.size)
        return reader.problem, reader.position, offset

    def _derive(self, segment: Segment, reader: BatchReader, header: BatchHeader) -> None:
        """Add a good batch to the leader epochs, the producer state and the transaction index."""
        if header.partition_leader_epoch > self._epochs.latest:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        ended = replay(self._producers, header, reader.batch)
        if ended is not None:
            segment.txn_index.append(ended)

    def _cut(self, segment: Segment, position: int, reason: str) -> None:
        self._note_cut(Cut(segment.log_path, position, segment.size - position, reason))
        segment.cut(position)
        segment.file.fsync()  # or the bytes that were cut may be there again, after new ones

    def _drop_from(self, at: int, reason: str) -> None:
        """Remove the segments from number ``at`` on. Empty ones do not count as cut."""
        for segment in self._segments[at:]:
            if segment.size:
                self._note_cut(Cut(segment.log_path, 0, segment.size, reason))
        self._drop(self._segments[at:])
        del self._segments[at:]

    def _drop(self, segments: Sequence[Segment]) -> None:
        """Rename the files of some segments, and schedule their deletion."""
        paths = []
        for segment in segments:
            segment.change_suffix(DELETED_SUFFIX)
            paths += [path for path in segment.paths() if self._env.files.exists(path)]
            segment.close()
        if paths:
            self._has_removed = True
            self._env.schedule_delete(paths)

    def _note_cut(self, cut: Cut) -> None:
        self.cuts.append(cut)
        self.truncated = True
        _log.warning("cut a log", path=cut.path, position=cut.position, bytes=cut.bytes, reason=cut.reason)

    def _finish(self, end_offset: int, found: PartitionDirectory) -> Iterator[Progress]:
        env, directory, segments = self._env, self.directory, self._segments
        if end_offset < self._log_start_offset:
            self._drop_from(0, f"the log starts at {self._log_start_offset}")
            self._epochs.clear()
            self._producers.clear()
            end_offset = self._log_start_offset
        if not segments:
            segments.append(open_segment(env, directory, end_offset, self._config, new=True))
        self.truncated = self.truncated or end_offset < self._recovery_point
        log_start_offset = max(self._log_start_offset, segments[0].base_offset)
        if log_start_offset > self._log_start_offset:
            # Either retention deleted the segment before it, or a power loss took its name: nobody knows.
            self.truncated = True
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._snapshots.remove_above(end_offset)
        if self.cuts or self._has_removed:
            # Or removed segments and snapshots may be there again, after new batches.
            env.files.sync_dir(directory)
        self._snapshots.remove_strays([segment.base_offset for segment in segments])
        self._snapshots.retake(end_offset, self._producers.snapshot())
        if end_offset != segments[-1].base_offset:
            self._snapshots.floating = end_offset
        loaded = LoadedLog(
            segments,
            self._epochs,
            self._producers,
            self._snapshots,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=min(self._recovery_point, end_offset),
            metadata_synced=False,
            high_watermark=self._high_watermark,
        )
        topic_id = found.topic_id or self._topic_id or ZERO_UUID
        self.log = PartitionLog(env, directory, self.topic, self.partition, topic_id, self._config, loaded)
        self.log.durability.unflushed_bytes = self.checked_bytes
        yield 0
