"""Metadata records as bytes: each in a frame, and frames in batches, as in KRaft's log and snapshots.

A record's value is: frame version (1), record type, record version, each an unsigned varint, then the message. It has
no key. A control record (leader change, snapshot header and footer) has no frame and is alone in its batch. Source:
Kafka's ``MetadataRecordSerde``, ``BatchBuilder`` of the raft module; KIP-595, KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncelog.wire.batch import BatchHeader, crc_matches, read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import RECORD_TYPES

FRAME_VERSION = 1


def frame(record: Message, version: int) -> bytearray:
    """Return the record in its frame. Raises ValueError for a field that the version does not have."""
    out = bytearray((FRAME_VERSION, record.API_KEY, version))
    record.encode_into(version, out, [])
    return out


def unframe(value: bytes) -> Message:
    """Return the record in a frame. Raises DecodeError, also for an unknown frame version or record type."""
    if len(value) < 3 or max(value[:3]) > 0x7F:
        raise DecodeError(f"no metadata record frame: {value[:8]!r}")
    frame_version, record_type, version = value[:3]
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata record has frame version {frame_version}")
    kind = RECORD_TYPES.get(record_type)
    if kind is None or not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise DecodeError(f"metadata record of unknown type {record_type}, version {version}")
    return kind.decode(value, version, 3)


def batch(
    records: Iterable[tuple[Message, int]], base_offset: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """Return a batch of pairs of record and version. ``timestamp`` is in milliseconds."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch)
    for record, version in records:
        builder.append(timestamp, None, frame(record, version))
    return builder.build()


class Batches:
    """Iterates over the batches of ``data`` up to the first one that is cut short, damaged or has a wrong offset.

    After that, ``valid_bytes`` is the position of the first bad batch (or the size of ``data``), ``reason`` says what
    is wrong with it, and ``next_offset`` is the offset after the last good one.
    """

    def __init__(self, data: bytes, base_offset: int) -> None:
        self.data = memoryview(data)
        self.next_offset = base_offset
        self.valid_bytes = 0
        self.reason = ""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yields each batch's position in bytes, and its header."""
        while self.valid_bytes < len(self.data):
            position = self.valid_bytes
            try:
                header = read_header(self.data, position)
            except DecodeError as error:
                self.reason = str(error)
                return
            if header.base_offset != self.next_offset or header.last_offset_delta < 0:
                self.reason = f"batch at {position} has offset {header.base_offset}, not {self.next_offset}"
                return
            if not crc_matches(self.data, position, header):
                self.reason = f"batch at {position} is cut short or does not match its checksum"
                return
            yield position, header
            self.valid_bytes = position + header.size
            self.next_offset = header.next_offset

    def records(self, position: int, header: BatchHeader) -> Iterator[Message]:
        """Yields the metadata records of the batch at ``position``, which is no control batch. Raises DecodeError."""
        for record in iterate_records(self.data, header, offset=position):
            if record.value is None:
                raise DecodeError(f"metadata record at offset {record.offset} has no value")
            yield unframe(record.value)
