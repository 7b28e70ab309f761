"""Files that keep one offset per partition, beside the partitions' directories.

The text, as Kafka's ``CheckpointFile`` and ``OffsetCheckpointFile`` write it: the version (0) on the first
line, the number of entries on the second, then ``topic partition offset`` for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.files import FileSystem

PartitionKey = tuple[str, int]
"""Topic and partition."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

NEW_SUFFIX = ".new"
"""A checkpoint that is being written beside the one that holds."""

_VERSION = "0"

_log = get_logger(__name__)


class MalformedCheckpointError(Exception):
    """The file is not a checkpoint; the message says in which line and why."""


class OffsetCheckpoint:
    """One checkpoint file. ``known`` is its content as this process last read or wrote it.

    A write replaces the file durably, and is left out if nothing has changed.
    """

    __slots__ = ("_files", "_is_durable", "_overtaken", "known", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._is_durable = True
        self._overtaken = False
        """Whether `save_now` wrote the file while a `save` was under way."""
        self.path = path
        self.known: dict[PartitionKey, int] = {}

    def read(self) -> dict[PartitionKey, int]:
        """The file's content: (topic, partition) -> offset. Empty if there is no file.

        Raises MalformedCheckpointError, OSError.
        """
        self.known = {}
        if self._files.exists(self.path):
            self.known = parse_offsets(self._files.read_bytes(self.path), self.path)
        return self.known

    async def save(self, current: Callable[[], Mapping[PartitionKey, int]]) -> None:
        """Write what ``current`` returns, in a worker thread; only one task may do so at a time. If `save_now` is
        called meanwhile, begin anew with what ``current`` returns then. Raises OSError, and then the file is
        unchanged, or not durable.
        """
        while (offsets := dict(current())) != self.known or not self._is_durable:
            self._overtaken = False
            # Formatting is in the thread, too: ten thousand lines take a while. Nobody changes `offsets` meanwhile.
            await self._files.offload(partial(self._write, self.path + NEW_SUFFIX, offsets, sync_name=False))
            if not self._overtaken:
                self._files.rename(self.path + NEW_SUFFIX, self.path)
                self.known, self._is_durable = offsets, False
                await self._files.offload(partial(self._files.sync_dir, self.path.rpartition("/")[0]))
                self._is_durable = True
                return

    def save_now(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Write, and return when it is durable. Raises OSError, and then the file is unchanged, or not durable."""
        offsets = dict(offsets)
        if offsets != self.known or not self._is_durable:
            self._write(self.path, offsets)
            self._overtaken = True
            self.known, self._is_durable = offsets, True

    def _write(self, path: str, offsets: Mapping[PartitionKey, int], *, sync_name: bool = True) -> None:
        self._files.replace(path, format_offsets(offsets), sync_name=sync_name)


class PartitionOffsets:
    """The checkpoint files of a data directory. For an open log they get its current offset; for one that is
    not open yet (``is_unopened``) they keep what they have."""

    def __init__(
        self,
        files: FileSystem,
        data_dir: str,
        logs: Mapping[PartitionKey, PartitionLog],
        is_unopened: Callable[[PartitionKey], bool],
    ) -> None:
        self._logs = logs
        self._is_unopened = is_unopened
        self.recovery_points = OffsetCheckpoint(files, f"{data_dir}/{RECOVERY_POINTS}")
        self.high_watermarks = OffsetCheckpoint(files, f"{data_dir}/{HIGH_WATERMARKS}")
        self.log_starts = OffsetCheckpoint(files, f"{data_dir}/{LOG_START_OFFSETS}")
        self.cleaned = OffsetCheckpoint(files, f"{data_dir}/{CLEANER_OFFSETS}")
        self._all = (self.recovery_points, self.high_watermarks, self.log_starts, self.cleaned)

    def read(self) -> None:
        for checkpoint in self._all:
            try:
                checkpoint.read()
            except (MalformedCheckpointError, OSError) as error:
                # As in Kafka. Without it more has to be recovered, or is visible, than necessary.
                _log.warning("checkpoint ignored", path=checkpoint.path, error=str(error))

    def forget(self, key: PartitionKey) -> None:
        """Drop the offsets of an earlier partition with this name, before a new one is created. Raises
        OSError."""
        for checkpoint in self._all:
            if key in checkpoint.known:
                checkpoint.save_now({it: offset for it, offset in checkpoint.known.items() if it != key})

    async def save_recovery_points(self) -> None:
        # Log start offsets first: recovery trusts everything below a recovery point, and after a power loss
        # some segments that were deleted without a flush may be there again.
        points = self._recovery_points()

        def still_reached() -> dict[PartitionKey, int]:
            now = self._recovery_points()  # lower, if the log was truncated meanwhile
            return {key: min(point, now[key]) for key, point in points.items() if key in now}

        await self.log_starts.save(self._log_starts)
        await self.recovery_points.save(still_reached)

    async def save_high_watermarks(self) -> None:
        await self.high_watermarks.save(self._high_watermarks)

    async def save_cleaned(self, log: PartitionLog, offset: int) -> None:
        """Note that the log was compacted up to that offset. Raises OSError."""
        truncations = log.truncations

        def cleaned() -> dict[PartitionKey, int]:
            open_now = {key: to for key, to in self.cleaned.known.items() if key in self._logs}
            if log.truncations == truncations:
                open_now[log.topic, log.partition] = offset
            return self._current(self.cleaned, open_now)

        await self.cleaned.save(cleaned)

    def save_log_starts(self) -> None:
        """Durable when it returns, which DeleteRecords needs; so this never runs in a thread. Raises
        OSError."""
        self.log_starts.save_now(self._log_starts())

    def lower(self, log: PartitionLog, end: int, start: int | None) -> None:
        """A log will end at offset ``end``, and start at ``start`` (None: where it starts now): let no checkpoint claim
        more. Durable when it returns: otherwise, once the log has grown again, a start after a loss of power
        would trust bytes that are not on the disk. Raises OSError.
        """
        key = (log.topic, log.partition)
        for checkpoint in (self.recovery_points, self.high_watermarks, self.cleaned):
            if checkpoint.known.get(key, 0) > end:
                checkpoint.save_now({**checkpoint.known, key: end})
        if start is not None:
            self.log_starts.save_now({**self.log_starts.known, key: start})

    def save_all(self) -> None:
        self.save_log_starts()
        self.recovery_points.save_now(self._recovery_points())
        self.high_watermarks.save_now(self._high_watermarks())

    def _recovery_points(self) -> dict[PartitionKey, int]:
        return self._current(
            self.recovery_points, {key: log.recovery_point for key, log in self._logs.items()}
        )

    def _high_watermarks(self) -> dict[PartitionKey, int]:
        return self._current(
            self.high_watermarks, {key: log.high_watermark for key, log in self._logs.items()}
        )

    def _log_starts(self) -> dict[PartitionKey, int]:
        """Only those that differ from the first segment's base offset, as in Kafka. Of a replicated log all: only they
        tell a start after a loss of power that nothing is missing before the first segment (`PartitionRecovery`).
        """
        starts = {}
        for key, log in self._logs.items():
            if log.log_start_offset > (0 if log.is_replicated else log.segments[0].base_offset):
                starts[key] = log.log_start_offset
        return self._current(self.log_starts, starts)

    def _current(
        self, checkpoint: OffsetCheckpoint, now: Mapping[PartitionKey, int]
    ) -> dict[PartitionKey, int]:
        """The offsets ``now``, and those known of partitions that are not open."""
        known = {key: offset for key, offset in checkpoint.known.items() if self._is_unopened(key)}
        return {**known, **now}


def format_offsets(offsets: Mapping[PartitionKey, int]) -> bytes:
    lines = [_VERSION, str(len(offsets))]
    lines.extend(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(text: bytes, path: str) -> dict[PartitionKey, int]:
    """The reverse of `format_offsets`. An empty text, or one with a version only, has no offsets, as in Kafka.

    Raises MalformedCheckpointError, naming ``path``.
    """
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise MalformedCheckpointError(f"{path} is no text") from None
    if not lines:
        return {}
    if lines[0] != _VERSION:
        raise MalformedCheckpointError(f"{path} has version {lines[0]!r}, not {_VERSION}")
    if len(lines) == 1:
        return {}
    found: dict[PartitionKey, int] = {}
    for line in lines[2:]:
        try:
            topic, partition, offset = line.split()
            found[topic, int(partition)] = int(offset)
        except ValueError:
            raise MalformedCheckpointError(f"{path} has a malformed line: {line!r}") from None
    if lines[1] != str(len(lines) - 2):
        raise MalformedCheckpointError(f"{path} should have {lines[1]!r} entries and has {len(lines) - 2}")
    return found
