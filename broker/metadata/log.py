"""`MetadataLog`: ``__cluster_metadata-0``, the log of metadata records as KRaft keeps it, with this node as its only
voter.

    00000000000000000000.log               segments: version 2 batches, the leader epoch in each header
    00000000000000000512-0000000003.checkpoint    snapshot of everything before offset 512
    quorum-state                           JSON: who leads, in which epoch (data version 0: static voters)
    leader-epoch-checkpoint                text: each epoch's first offset
    partition.metadata                     text: the topic id, always Kafka's reserved one

Kafka's own tools read these files. Offset and time indexes can be derived and are not written. A start reads the newest
whole snapshot and the batches after it, cuts the log at the first bad byte, and becomes leader of a new epoch. A new
snapshot starts a new segment and removes all older files. Source: ``KafkaRaftLog``, ``FileQuorumStateStore``,
``LeaderState``; KIP-595, KIP-630, KIP-631.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.metadata import snapshots
from oncelog.broker.metadata.frames import Batches, batch
from oncelog.broker.metadata.image import MetadataImage
from oncelog.wire.control import KRAFT_VOTERS, LEADER_CHANGE, control_batch
from oncelog.wire.errors import DecodeError
from oncelog.wire.stored.control import LeaderChangeMessage, Voter
from oncelog.wire.stored.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from oncelog.broker.metadata.snapshots import SnapshotId
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import File, FileSystem
    from oncelog.wire.schema import Message

DIRECTORY = "__cluster_metadata-0"
SEGMENT_SUFFIX = ".log"
QUORUM_STATE = "quorum-state"
_PARTITION_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


class LoadedMetadata(NamedTuple):
    """What a start found. ``cut_bytes`` were cut off the log's end because of ``cut_reason`` (empty: none).
    ``bad_snapshots`` are the reasons why newer snapshots could not be used. ``first_records`` are those with which the
    log is to begin, as `snapshots.FIRST` has them.
    """

    image: MetadataImage
    cut_bytes: int
    cut_reason: str
    bad_snapshots: list[str]
    open_transaction: bool
    first_records: list[Message]


class MetadataLog:
    """The files of the log. ``end_offset`` is the offset of the next record; ``epoch`` the last record's leader
    epoch, and after `lead` this node's.

    ``bytes_since_snapshot`` is how much log a start would have to read after the snapshot.
    """

    def __init__(self, data_dir: str, files: FileSystem, clock: Clock) -> None:
        self.directory = f"{data_dir}/{DIRECTORY}"
        self.end_offset = 0
        self.epoch = 0
        self.last_timestamp = 0
        self.snapshot_id: SnapshotId | None = None
        self.bytes_since_snapshot = 0
        self._data_dir = data_dir
        self._files = files
        self._clock = clock
        self._file: File | None = None
        self._epochs: list[tuple[int, int]] = []
        self._failed = ""
        self.on_append: Callable[[int, bytearray], None] | None = None
        """Called with the base offset and the bytes of each batch, when it is written."""
        self._quorum: snapshots.Quorum = {}
        self._first_records: list[Message] = []

    def load(self) -> LoadedMetadata:
        """Open the log, or create it, and read the image.

        Raises DecodeError, without changing a file, if neither a snapshot nor the log's beginning can be read.
        """
        files = self._files
        if not files.is_dir(self.directory):
            files.makedirs(self.directory)
            files.sync_dir(self._data_dir)
        if not files.exists(self._path("partition.metadata")):
            files.replace(self._path("partition.metadata"), _PARTITION_METADATA)
        image, bad_snapshots = self._load_snapshot()
        start = self.end_offset = 0 if self.snapshot_id is None else self.snapshot_id.offset
        image.offset = start - 1
        bases = [base for base in self._segment_bases() if base <= start][-1:]
        bases += [base for base in self._segment_bases() if base > start]
        if bases and bases[0] > start:
            raise DecodeError(
                f"{self.directory}: the log begins at {bases[0]} and no snapshot covers {start}"
            )
        reader = _Reader(image, start, self._quorum)
        cut_bytes, reason = self._load_segments(bases, reader)
        self._open_segment(start if reason == _BEHIND_SNAPSHOT or not bases else bases[-1])
        self._remove_older()
        return LoadedMetadata(
            image, cut_bytes, reason, bad_snapshots, reader.transaction is not None, self._first_records
        )

    def _load_snapshot(self) -> tuple[MetadataImage, list[str]]:
        bad = []
        found = [snapshots.parse_name(name) for name in self._files.listdir(self.directory)]
        for snapshot_id in sorted((row for row in found if row is not None), reverse=True):
            image = MetadataImage()
            try:
                records, quorum = snapshots.read(self._files, self._path(snapshot_id.file_name))
                if snapshot_id == snapshots.FIRST:  # a log that is not new has them, too
                    self._first_records, records = records, []
                for record in records:
                    image.replay(record)
            except DecodeError as error:
                bad.append(str(error))
                continue
            self.snapshot_id = snapshot_id
            self.epoch = snapshot_id.epoch
            self._quorum = quorum
            return image, bad
        return MetadataImage(), bad

    def _load_segments(self, bases: list[int], reader: _Reader) -> tuple[int, str]:
        """Read the segments and cut the log at the first bad byte. Returns the number of bytes cut, and why."""
        cut_bytes, reason = 0, ""
        expected = bases[0] if bases else 0
        kept = []
        for base in bases:
            path = self._path(_segment_name(base))
            if reason or base != expected:
                reason = reason or f"segment {base} does not follow offset {expected}"
                cut_bytes += self._files.size(path)
                self._files.remove(path)
                continue
            batches = Batches(self._files.read_bytes(path), base)
            self.bytes_since_snapshot += reader.read(batches)
            if batches.reason:
                reason = batches.reason
                cut_bytes += len(batches.data) - batches.valid_bytes
                self._cut(path, batches.valid_bytes)
            expected = batches.next_offset
            kept.append(base)
        if expected < self.end_offset:
            # The disk lost the end of the log but has the snapshot of it: the snapshot counts.
            for base in kept:
                self._files.remove(self._path(_segment_name(base)))
            return cut_bytes, _BEHIND_SNAPSHOT
        bases[:] = kept
        self.end_offset = expected
        self.epoch = max(self.epoch, reader.epoch)
        self.last_timestamp = reader.timestamp
        self._epochs = reader.epochs
        return cut_bytes, reason

    def _cut(self, path: str, size: int) -> None:
        file = self._files.open(path)
        try:
            file.truncate(size)
            file.fsync()
        finally:
            file.close()

    def lead(self, node_id: int) -> int:
        """Become leader of a new epoch, durably, and append a leader change. Returns the epoch."""
        self.epoch = max(self.epoch, self._quorum_epoch()) + 1
        state = (
            f'{{"clusterId":"","leaderId":{node_id},"leaderEpoch":{self.epoch},"votedId":-1,"appliedOffset":0,'
            f'"currentVoters":[{{"voterId":{node_id}}}],"data_version":0}}'
        )
        self._files.replace(self._path(QUORUM_STATE), state.encode())
        self._epochs.append((self.epoch, self.end_offset))
        self._write_epochs()
        voters = [Voter(node_id)]
        message = LeaderChangeMessage(0, node_id, voters, voters).encode(0)
        timestamp = self._clock.now_ms()
        chunk = control_batch(
            LEADER_CHANGE,
            message,
            timestamp=timestamp,
            base_offset=self.end_offset,
            leader_epoch=self.epoch,
        )
        self._write(chunk, 1, timestamp, durable=False)
        return self.epoch

    def append(self, records: Sequence[tuple[Message, int]], *, durable: bool) -> int:
        """Append pairs of record and version as one batch. Returns the last record's offset.

        ``durable``: sync it before returning. Raises OSError without changing the log. After a failed sync nobody knows
        what is on the disk, so every later call raises.
        """
        timestamp = self._clock.now_ms()
        chunk = batch(records, self.end_offset, self.epoch, timestamp)
        self._write(chunk, len(records), timestamp, durable=durable)
        return self.end_offset - 1

    def _write(self, chunk: bytearray, record_count: int, timestamp: int, *, durable: bool) -> None:
        if self._failed or self._file is None:
            raise OSError(f"the cluster metadata log is offline: {self._failed or 'not open'}")
        self._file.append(chunk)
        if durable:
            self.sync()
        base_offset = self.end_offset
        self.end_offset += record_count
        if self.on_append is not None:
            self.on_append(base_offset, chunk)
        self.bytes_since_snapshot += len(chunk)
        self.last_timestamp = timestamp

    def sync(self) -> None:
        """Sync all appended records to the disk. Blocks. Raises OSError, and then the log is offline."""
        try:
            if self._file is not None and not self._failed:
                self._file.fsync()
        except OSError as error:
            self._failed = str(error)
            raise

    async def sync_in_background(self) -> None:
        """`sync`, in a worker thread."""
        file = self._file
        if file is None or self._failed:
            return
        try:
            await self._files.sync(file)
        except OSError as error:
            self._failed = str(error)
            raise

    def snapshot(self, records: Iterable[tuple[Message, int]]) -> SnapshotId:
        """Write a snapshot of ``records``, the image at ``end_offset``, begin a segment, and remove older files.

        Raises OSError; the log then goes on as it was.
        """
        snapshot_id = snapshots.SnapshotId(self.end_offset, self.epoch)
        snapshots.write(
            self._files,
            self._path(snapshot_id.file_name),
            records,
            epoch=self.epoch,
            timestamp=self._clock.now_ms(),
            last_contained_log_timestamp=self.last_timestamp,
            quorum=self._quorum,
        )
        self._open_segment(self.end_offset)
        self.snapshot_id = snapshot_id
        self.bytes_since_snapshot = 0
        # The current epoch keeps an entry, which starts at the log's new beginning (``LeaderEpochFileCache``).
        self._epochs = [(self.epoch, self.end_offset)]
        with contextlib.suppress(OSError):
            self._write_epochs()
        self._remove_older()
        return snapshot_id

    @property
    def has_voters(self) -> bool:
        """Whether the log says who votes in the quorum."""
        return KRAFT_VOTERS in self._quorum

    def close(self, *, sync: bool = True) -> None:
        """Sync, unless nobody will read the log again, and close. Raises OSError."""
        try:
            if sync:
                self.sync()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open_segment(self, base: int) -> None:
        path = self._path(_segment_name(base))
        is_new = not self._files.exists(path)
        file = self._files.open(path, create=True)
        if is_new:
            self._files.sync_dir(self.directory)
        if self._file is not None:
            self._file.close()
        self._file = file

    def _remove_older(self) -> None:
        """Remove segments and snapshots older than the newest snapshot, and unfinished snapshots. If a file cannot be
        removed, the next call tries again."""
        newest = self.snapshot_id or snapshots.SnapshotId(0, 0)
        bases = self._segment_bases()
        oldest = max((base for base in bases if base <= newest.offset), default=0)
        useless = [_segment_name(base) for base in bases if base < oldest]
        for name in self._files.listdir(self.directory):
            other = snapshots.parse_name(name)
            if name.endswith(snapshots.PART_SUFFIX) or (other is not None and other < newest):
                useless.append(name)
        for name in useless:
            with contextlib.suppress(OSError):
                self._files.remove(self._path(name))

    def _segment_bases(self) -> list[int]:
        """Return the base offsets of all segments, in order."""
        names = self._files.listdir(self.directory)
        stems = [name.removesuffix(SEGMENT_SUFFIX) for name in names if name.endswith(SEGMENT_SUFFIX)]
        return [int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal()]

    def _quorum_epoch(self) -> int:
        """Return the epoch in ``quorum-state``, or 0 without that file. Raises DecodeError if it cannot be read."""
        if not self._files.exists(self._path(QUORUM_STATE)):
            return 0
        text = self._files.read_bytes(self._path(QUORUM_STATE)).decode("utf-8", "replace")
        digits = text.partition('"leaderEpoch":')[2].partition(",")[0].partition("}")[0].strip()
        if not digits.lstrip("-").isdecimal():
            raise DecodeError(f"{self._path(QUORUM_STATE)}: no leaderEpoch in {text[:200]!r}")
        return int(digits)

    def _write_epochs(self) -> None:
        lines = ["0", str(len(self._epochs)), *(f"{epoch} {start}" for epoch, start in self._epochs), ""]
        self._files.replace(self._path("leader-epoch-checkpoint"), "\n".join(lines).encode())

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"


_BEHIND_SNAPSHOT = "the log ends before the newest snapshot does"


def _segment_name(base: int) -> str:
    return f"{base:020d}{SEGMENT_SUFFIX}"


class _Reader:
    """Replays batches from ``start`` on into the image, and collects epochs, the last timestamp and an open
    transaction.
    """

    def __init__(self, image: MetadataImage, start: int, quorum: snapshots.Quorum) -> None:
        self.image = image
        self.start = start
        self.quorum = quorum
        self.epoch = 0
        self.timestamp = 0
        self.epochs: list[tuple[int, int]] = []
        self.transaction: list[Message] | None = None

    def read(self, batches: Batches) -> int:
        """Returns the size of the replayed batches in bytes."""
        size = 0
        for position, header in batches:
            if header.partition_leader_epoch > self.epoch:
                self.epoch = header.partition_leader_epoch
                self.epochs.append((self.epoch, header.base_offset))
            self.timestamp = header.max_timestamp
            if header.base_offset < self.start:
                continue
            size += header.size
            if header.is_control:
                snapshots.read_control(batches, position, header, self.quorum)
            else:
                for record in batches.records(position, header):
                    self._apply(record)
            self.image.offset = header.last_offset
        return size

    def _apply(self, record: Message) -> None:
        """Replay a record; those of a metadata transaction when it ends (KIP-868)."""
        if isinstance(record, BeginTransactionRecord):
            self.transaction = []
        elif isinstance(record, AbortTransactionRecord):
            self.transaction = None
        elif isinstance(record, EndTransactionRecord):
            waiting, self.transaction = self.transaction or [], None
            for waited in waiting:
                self.image.replay(waited)
        elif self.transaction is not None:
            self.transaction.append(record)
        else:
            self.image.replay(record)
