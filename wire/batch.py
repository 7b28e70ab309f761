"""Record batches of magic 2: reads, checks and stamps their headers in place, and builds batches.

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

from oncelog.wire.compression import NONE, compress
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError
from oncelog.wire.varint import append_varint

if TYPE_CHECKING:
    from collections.abc import Iterable

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


_NO_DELTAS = bytes(2)
_SHORT = 64
"""A length below this is a varint of one byte: twice the length."""


class BatchBuilder:
    """Builds one batch, record by record: for internal topics, the metadata log, compaction and tests.

    Offsets are consecutive from ``base_offset`` unless ``append`` gets one (compaction leaves gaps).
    ``log_append_time`` (ms) makes the timestamp type LogAppendTime; ``delete_horizon_ms`` replaces the base timestamp.
    ``codec`` and ``level`` are those of wire.compression.
    """

    __slots__ = (
        "_base_timestamp",
        "_last_offset",
        "_max_timestamp",
        "_payload",
        "base_offset",
        "base_sequence",
        "codec",
        "control",
        "delete_horizon_ms",
        "leader_epoch",
        "level",
        "log_append_time",
        "producer_epoch",
        "producer_id",
        "record_count",
        "transactional",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        codec: int = NONE,
        level: int | None = None,
        log_append_time: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control
        self.codec = codec
        self.level = level
        self.log_append_time = log_append_time
        self.delete_horizon_ms = delete_horizon_ms
        self.record_count = 0
        self._payload = bytearray()
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset = base_offset - 1

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return HEADER_SIZE + len(self._payload)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | bytes, Buffer | None]] = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record and return its offset. ``timestamp`` in ms, -1 for none; header keys are UTF-8.

        Raises ValueError if ``offset`` is not above the last record's.
        """
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise ValueError(f"offset {offset} after {self._last_offset}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = bytearray(1)  # the record's attributes, all unused
        if timestamp == self._base_timestamp and offset == self.base_offset:  # as in a batch of one record
            body += _NO_DELTAS
        else:
            append_varint(body, timestamp - self._base_timestamp)
            append_varint(body, offset - self.base_offset)
        _append_bytes(body, key)
        _append_bytes(body, value)
        headers = tuple(headers)
        append_varint(body, len(headers))
        for name, content in headers:
            _append_bytes(body, name.encode() if isinstance(name, str) else name)
            _append_bytes(body, content)
        append_varint(self._payload, len(body))
        self._payload += body
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._last_offset = offset
        self.record_count += 1
        return offset

    def build(self, *, last_offset: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch's bytes, which may be stamped in place.

        ``last_offset`` may be above the last record's, where compaction removed the last records. ``max_timestamp``
        replaces that of the records. Raises ValueError for a batch without offsets.
        """
        last_offset = self._last_offset if last_offset is None else last_offset
        if last_offset < max(self._last_offset, self.base_offset):
            raise ValueError(f"last offset {last_offset} of a batch from {self.base_offset}")
        if max_timestamp is None:
            max_timestamp = self._max_timestamp if self.log_append_time is None else self.log_append_time
        return assemble(
            BatchHeader(
                self.base_offset,
                0,
                self.leader_epoch,
                MAGIC,
                0,
                self._attributes(),
                last_offset - self.base_offset,
                NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
                max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ),
            compress(self.codec, self._payload, self.level) if self.codec else self._payload,
        )

    def _attributes(self) -> int:
        attributes = self.codec
        if self.log_append_time is not None:
            attributes |= LOG_APPEND_TIME_BIT
        if self.transactional:
            attributes |= TRANSACTIONAL_BIT
        if self.control:
            attributes |= CONTROL_BIT
        if self.delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_BIT
        return attributes


def _append_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)  # -1 in zig-zag form
        return
    size = len(data) if type(data) is bytes else memoryview(data).nbytes
    if size < _SHORT:
        out.append(2 * size)
    else:
        append_varint(out, size)
    out += data
