"""Snapshots of the metadata log: ``<offset>-<epoch>.checkpoint``, with all records that make the image at an offset.

The file consists of batches like the log's, with offsets from 0: a snapshot header (control batch), the records, a
snapshot footer (control batch). ``<offset>`` is the first offset after the snapshot, ``<epoch>`` the leader epoch of
the record before it. It is written as ``….checkpoint.part``, synced and renamed.

If voters may change (``kraft.version`` 1), the quorum's own records follow the header: its version and its voters. They
have no meaning here, and are kept for a Kafka that takes the directory over: without them it would have no voters.

``bootstrap.checkpoint``, beside the log's directory, has the same format and holds the first records of a new log. The
kafka-storage of 4.4 writes these to the snapshot `FIRST` instead, where that of 4.3 writes only the quorum's records.
Source: Kafka's ``RecordsSnapshotWriter``, ``Snapshots``, ``BootstrapMetadata``; KIP-630.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.metadata.frames import Batches, batch
from oncelog.wire.control import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    control_batch,
    read_control_type,
)
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from oncelog.wire.stored.control import SnapshotFooterRecord, SnapshotHeaderRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.broker.seams.files import FileSystem
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.schema import Message

    Quorum = dict[int, bytes]

BOOTSTRAP = "bootstrap.checkpoint"
SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
RECORDS_PER_BATCH = 1000
QUORUM_TYPES = (KRAFT_VERSION, KRAFT_VOTERS)


class SnapshotId(NamedTuple):
    """``offset`` is the first after the snapshot, ``epoch`` the leader epoch of the record before it."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}{SUFFIX}"


FIRST = SnapshotId(0, 0)
"""The snapshot before the first record."""


def parse_name(name: str) -> SnapshotId | None:
    """Return the id in the file name of a snapshot, or None for any other file."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or len(offset) != 20 or len(epoch) != 10:
        return None
    return SnapshotId(int(offset), int(epoch)) if offset.isdecimal() and epoch.isdecimal() else None


def write(
    files: FileSystem,
    path: str,
    records: Iterable[tuple[Message, int]],
    *,
    epoch: int,
    timestamp: int,
    last_contained_log_timestamp: int,
    quorum: Quorum | None = None,
) -> int:
    """Write a snapshot of pairs of record and version, durably. Returns its size in bytes.

    ``quorum`` holds the newest control record of each of `QUORUM_TYPES`, if any.

    Raises OSError; it leaves at most a ``.part`` file, which is never read.
    """
    part = path + ".part"
    if files.exists(part):
        files.remove(part)
    file = files.open(part, create=True)
    try:
        for chunk in _batches(records, epoch, timestamp, last_contained_log_timestamp, quorum or {}):
            file.append(chunk)
        file.fsync()
        size = file.size()
    finally:
        file.close()
    files.rename(part, path)
    files.sync_dir(path.rpartition("/")[0])
    return size


def encode(
    records: Iterable[tuple[Message, int]], *, epoch: int, timestamp: int, last_contained_log_timestamp: int
) -> bytes:
    """Return the content of a snapshot of pairs of record and version, without the quorum's own records."""
    return b"".join(_batches(records, epoch, timestamp, last_contained_log_timestamp, {}))


def _batches(
    records: Iterable[tuple[Message, int]],
    epoch: int,
    timestamp: int,
    last_contained_log_timestamp: int,
    quorum: Quorum,
) -> Iterator[bytearray]:
    header = SnapshotHeaderRecord(0, last_contained_log_timestamp).encode(0)
    yield control_batch(SNAPSHOT_HEADER, header, timestamp=timestamp, base_offset=0, leader_epoch=epoch)
    offset = 1
    for control_type, value in sorted(quorum.items()):
        yield control_batch(control_type, value, timestamp=timestamp, base_offset=offset, leader_epoch=epoch)
        offset += 1
    pending: list[tuple[Message, int]] = []
    for row in records:
        pending.append(row)
        if len(pending) == RECORDS_PER_BATCH:
            yield batch(pending, offset, epoch, timestamp)
            offset += len(pending)
            pending.clear()
    if pending:
        yield batch(pending, offset, epoch, timestamp)
        offset += len(pending)
    footer = SnapshotFooterRecord(0).encode(0)
    yield control_batch(SNAPSHOT_FOOTER, footer, timestamp=timestamp, base_offset=offset, leader_epoch=epoch)


def read(files: FileSystem, path: str) -> tuple[list[Message], Quorum]:
    """Return all records of a snapshot, and the quorum's own. Raises DecodeError if the file is damaged, OSError."""
    return decode(files.read_bytes(path), path)


def decode(data: bytes, path: str) -> tuple[list[Message], Quorum]:
    """Return what `read` does, of the content of a snapshot. Raises DecodeError, which names ``path``."""
    records: list[Message] = []
    quorum: Quorum = {}
    batches = Batches(data, 0)
    last = None
    for position, header in batches:
        if last == SNAPSHOT_FOOTER or (last is None and not header.is_control):
            raise DecodeError(f"{path}: batch at {position} is outside of header and footer")
        if header.is_control:
            last = read_control(batches, position, header, quorum)
        else:
            records.extend(batches.records(position, header))
    if last != SNAPSHOT_FOOTER or batches.reason:
        raise DecodeError(f"{path}: {batches.reason or 'the snapshot has no footer'}")
    return records, quorum


def read_control(batches: Batches, position: int, header: BatchHeader, quorum: Quorum) -> int:
    """Put the quorum's own records of a control batch into ``quorum``. Returns the type of the batch's last record."""
    control_type = -1
    for record in iterate_records(batches.data, header, offset=position):
        control_type = read_control_type(record.key or b"")
        if control_type in QUORUM_TYPES:
            quorum[control_type] = bytes(record.value or b"")
    return control_type
