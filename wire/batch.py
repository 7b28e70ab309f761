"""Record batches of magic 2: reads, checks and stamps their headers in place, and assembles batches.

A batch is 61 bytes of header and its records, which may be compressed as a whole. Big-endian:

    offset  bytes  field
         0      8  base offset
         8      4  batch length: the bytes after this field
        12      4  partition leader epoch
        16      1  magic (2)
        17      4  CRC-32C of everything after this field
        21      2  attributes: codec 0-2, timestamp type 3, transactional 4, control 5, delete horizon 6
        23      4  last offset delta
        27      8  base timestamp, or the delete horizon where attribute bit 6 is set (ms)
        35      8  max timestamp (ms)
        43      8  producer id
        51      2  producer epoch
        53      4  base sequence
        57      4  record count

Source: ``org.apache.kafka.common.record.internal.DefaultRecordBatch``; KIP-98, KIP-534.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING

from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_SIZE = 61
"""Bytes of a batch before its records."""
LOG_OVERHEAD = 12
"""Bytes of a batch that its ``batch length`` field does not count."""
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

SEQUENCE_MAX = 0x7FFFFFFF

MAGIC_AT = 16
LOW_ATTRIBUTES_AT = 22
"""The position of the low byte of the attributes, which has all bits that are in use."""
PRODUCER_AT = 43
producer_of = Struct(">qhi").unpack_from
"""Read producer id, producer epoch and base sequence of a batch, at the position `PRODUCER_AT`."""

_CRC_AT = 17
_ATTRIBUTES_AT = 21
_header = Struct(">qiibIhiqqqhii")
_stamp_base_offset = Struct(">q").pack_into
_stamp_leader_epoch = Struct(">i").pack_into
_crc = Struct(">I")
_timestamps = Struct(">hiqq")
_read = _header.unpack_from


class BatchHeader:
    """The decoded header of a batch. Stamping the batch's bytes does not change it."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which wraps to 0 after 2**31-1; -1 without sequence numbers."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> int:
        """The id of the compression type (see wire.compression); 5 to 7 are undefined."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may remove the batch's tombstones (wall time, ms); None if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchHeader):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"BatchHeader({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """The header of the batch that starts at ``offset``; the records need not be there.

    Raises DecodeError if fewer than 61 bytes are left, the magic is not 2, or the batch length is too short for a
    header. Does not check that the buffer holds the whole batch.
    """
    try:
        header = BatchHeader(*_read(buffer, offset))
    except StructError:
        raise DecodeError(f"no room for a batch header of {HEADER_SIZE} bytes at {offset}") from None
    if header.magic != MAGIC:
        raise DecodeError(f"batch at {offset} has magic {header.magic}, not {MAGIC}")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise DecodeError(f"batch at {offset} has length {header.batch_length}, less than its header")
    return header


def crc_matches(buffer: Buffer, offset: int, header: BatchHeader) -> bool:
    """Whether the batch's CRC is correct; False if the buffer does not hold the whole batch."""
    end = offset + header.batch_length + LOG_OVERHEAD
    view = memoryview(buffer)
    return end <= len(view) and crc32c(view[offset + _ATTRIBUTES_AT : end]) == header.crc


def stamp(buffer: Buffer, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and partition leader epoch that the log gives a batch; the CRC covers neither."""
    _stamp_base_offset(buffer, offset, base_offset)
    _stamp_leader_epoch(buffer, offset + 12, leader_epoch)


def restamp_timestamps(buffer: Buffer, offset: int, *, max_timestamp: int, log_append_time: bool) -> None:
    """Write the max timestamp and timestamp type, and the new CRC.

    The base timestamp and the other attributes stay, as with ``DefaultRecordBatch.setMaxTimestamp``; undefined
    attribute bits are cleared.
    """
    view = memoryview(buffer)
    header = read_header(view, offset)
    attributes = header.attributes & (CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT)
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    _timestamps.pack_into(
        view,
        offset + _ATTRIBUTES_AT,
        attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
    )
    _crc.pack_into(view, offset + _CRC_AT, crc32c(view[offset + _ATTRIBUTES_AT : offset + header.size]))


def assemble(header: BatchHeader, payload: Buffer) -> bytearray:
    """A batch of ``header`` and ``payload``: its records, already compressed if the header has a codec.

    Sets the batch length and CRC in ``header`` too.
    """
    view = memoryview(payload)
    header.batch_length = HEADER_SIZE - LOG_OVERHEAD + view.nbytes
    out = bytearray(HEADER_SIZE)
    out += view
    _header.pack_into(
        out,
        0,
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    header.crc = crc32c(memoryview(out)[_ATTRIBUTES_AT:])
    _crc.pack_into(out, _CRC_AT, header.crc)
    return out
