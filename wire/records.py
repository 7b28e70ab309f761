"""Reads the records of a batch, as objects or one by one: for compaction, internal topics and tools.

A record: length (varint), attributes (1 byte, unused), timestamp delta (varlong), offset delta (varint), key
and value (varint length, -1 for null, and bytes), header count (varint) and headers (key, value likewise).
Source: ``org.apache.kafka.common.record.internal.DefaultRecord``. `wire.walk` checks the batches of producers faster,
without objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.batch import HEADER_SIZE, BatchHeader, read_header
from oncelog.wire.compression import decompress_steps
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.steps import finish
from oncelog.wire.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from oncelog.wire.steps import Steps

HEADERS_UNLIMITED = (1 << 31) - 1
"""More headers than a record can have."""

HEADERS_AT_ONCE = 32
"""Headers of a record that are read at once, where long work is done in steps."""

ARRAY_BYTES_MAX = (1 << 31) - 1
"""Default limit for the bytes of a batch's decompressed records: the largest array in Java."""


class Record:
    """One record. ``timestamp`` in ms (-1: none). Header keys are bytes (UTF-8, unchecked)."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


RecordLayout = tuple[int, int, int, int, int, int, int, int, int]
"""The result of ``scan``: end of the record, timestamp delta, offset delta, start and end of key and of value (end -1
for null), header count, start of the headers."""


class ManyHeaders(DecodeError):  # noqa: N818
    """A record has more headers than the caller wants to read at once. Its headers were not checked."""

    def __init__(self, headers: int) -> None:
        super().__init__(f"{headers} record headers")
        self.layout: RecordLayout
        """The layout of the record (`scan` sets it)."""


def scan(
    data: bytes | bytearray, position: int, limit: int, headers_max: int = HEADERS_UNLIMITED
) -> RecordLayout:
    """Find the fields of the record at ``position`` of the (decompressed) records, which end at ``limit``.

    Raises DecodeError where ``DefaultRecord.readFrom`` does: for a varint that is too long, a length that exceeds the
    record or differs from the sum of its fields, a negative header count or header key size. Raises ManyHeaders if the
    record has more than ``headers_max`` headers.
    """
    try:
        return _scan(data, position, limit, headers_max)
    except IndexError:
        raise DecodeError("record is cut short") from None


def _scan(data: bytes | bytearray, position: int, limit: int, headers_max: int) -> RecordLayout:
    # For speed, non-negative varints of one byte (neither bit of 129 is set) are read inline.
    length = data[position]
    if length & 129:
        length, at = read_varint(data, position)
    else:
        length >>= 1
        at = position + 1
    end = at + length
    if length < 1 or end > limit:
        raise DecodeError(f"record of {length} bytes where {limit - at} are left")
    at += 1  # the attributes
    timestamp_delta = data[at]
    if timestamp_delta & 129:
        timestamp_delta, at = read_varlong(data, at)
    else:
        timestamp_delta >>= 1
        at += 1
    offset_delta = data[at]
    if offset_delta & 129:
        offset_delta, at = read_varint(data, at)
    else:
        offset_delta >>= 1
        at += 1
    key_at, key_end, at = _field(data, at, end)
    value_at, value_end, at = _field(data, at, end)
    header_count = data[at]
    headers_at = at + 1
    if header_count:
        header_count, headers_at = read_varint(data, at)
        try:
            at = skip_headers(data, at, end, headers_max)
        except ManyHeaders as many:
            many.layout = (
                end, timestamp_delta, offset_delta, key_at, key_end, value_at, value_end, header_count, headers_at,
            )  # fmt: skip
            raise
    else:
        at = headers_at
    if at != end:
        raise DecodeError(f"record of {length} bytes whose parts take {length + at - end}")
    return (
        end, timestamp_delta, offset_delta, key_at, key_end, value_at, value_end, header_count, headers_at,
    )  # fmt: skip


def scan_front(data: bytes | bytearray, position: int, limit: int) -> tuple[int, int, int, int]:
    """The end of the record at ``position``, its timestamp delta and offset delta, and the place of its key's length.

    For records that were checked before: it reads nothing of what follows, however much that is. Raises DecodeError.
    """
    try:
        length, at = read_varint(data, position)
        end = at + length
        timestamp_delta, at = read_varlong(data, at + 1)
        offset_delta, at = read_varint(data, at)
    except IndexError:
        raise DecodeError("record is cut short") from None
    if length < 1 or end > limit or at >= end:
        raise DecodeError(f"record of {length} bytes where {limit - at} are left")
    return end, timestamp_delta, offset_delta, at


def check_record_size(data: bytes | bytearray | memoryview, position: int, size_max: int) -> int:
    """Return the position after a record. Its size, which stands before it, does not count.

    Raises KafkaError (INVALID_RECORD) if the record has more than ``size_max`` bytes. Source:
    ``DefaultRecord.readFrom``.
    """
    size, start = read_varint(data, position)
    if size > size_max:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid record size: {size} exceeds the configured maximum record size of {size_max}.",
        )
    return start + size


def skip_headers(
    data: bytes | bytearray, position: int, end: int, headers_max: int = HEADERS_UNLIMITED
) -> int:
    """The position after a record's headers, whose count is at ``position``; ``end`` is the end of the record.

    The result may be beyond ``end``. Raises DecodeError, IndexError beyond the end of ``data``, and ManyHeaders for
    more than ``headers_max``.
    """
    count, at = read_varint(data, position)
    if count < 0 or count > end - at:
        raise DecodeError(f"{count} record headers in {end - at} bytes")
    if count > headers_max:
        raise ManyHeaders(count)
    return skip_headers_at(data, at, count)


def skip_headers_at(data: bytes | bytearray, at: int, count: int) -> int:
    """The position after ``count`` headers that begin at ``at``. Raises as `skip_headers`."""
    for _ in range(count):
        length = data[at]
        if length & 129:  # negative, or longer than a byte
            length, at = read_varint(data, at)
            if length < 0:
                raise DecodeError("record header without a key")
            at += length
        else:
            at += 1 + (length >> 1)
        length = data[at]
        if length & 129:
            length, at = read_varint(data, at)
            at += max(length, 0)
        else:
            at += 1 + (length >> 1)
    return at


def _field(data: bytes | bytearray, position: int, limit: int) -> tuple[int, int, int]:
    """Start and end (-1 for null) of the nullable bytes at ``position``, and the position after them."""
    length = data[position]
    if length & 129:
        length, at = read_varint(data, position)
        if length < 0:
            return at, -1, at
    else:
        length >>= 1
        at = position + 1
    end = at + length
    if end > limit:
        raise DecodeError(f"field of {length} bytes where {limit - at} are left in the record")
    return at, end, end


def records_of(batch: Buffer, header: BatchHeader, max_size: int = ARRAY_BYTES_MAX, offset: int = 0) -> bytes:
    """The bytes of a batch's records, decompressed; ``batch`` holds the whole batch at ``offset``.

    Raises DecodeError if they cannot be decompressed, and TooLarge if they take more than ``max_size``.
    """
    return bytes(finish(records_of_in_steps(batch, header, max_size, offset)))


def records_of_in_steps(
    batch: Buffer, header: BatchHeader, max_size: int = ARRAY_BYTES_MAX, offset: int = 0
) -> Steps[bytes | bytearray]:
    """As `records_of`, in steps."""
    end = offset + header.size
    view = memoryview(batch)[offset + HEADER_SIZE : end]
    if len(view) != header.size - HEADER_SIZE:
        raise DecodeError(f"batch of {header.size} bytes is cut short")
    return (yield from decompress_steps(header.codec, view, max_size))


def iterate_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    offset: int = 0,
    max_size: int = ARRAY_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the batch at ``offset``, with absolute offsets and timestamps; control records too.

    With LogAppendTime every record has the batch's max timestamp. Raises DecodeError at the first malformed record, and
    if the declared number of records does not end at the end of the batch.
    """
    if header is None:
        header = read_header(batch, offset)
    data = records_of(batch, header, max_size, offset)
    limit = len(data)
    position = 0
    for _ in range(header.record_count):
        position, delta, offset_delta, key_at, key_end, value_at, value_end, header_count, headers_at = scan(
            data, position, limit
        )
        yield Record(
            header.base_offset + offset_delta,
            header.max_timestamp if header.is_log_append_time else wrap_int64(header.base_timestamp + delta),
            data[key_at:key_end] if key_end >= 0 else None,
            data[value_at:value_end] if value_end >= 0 else None,
            _headers(data, headers_at, header_count) if header_count else [],
        )
    if position != limit:
        raise DecodeError(f"{limit - position} bytes after the {header.record_count} records of a batch")


def _headers(data: bytes, position: int, count: int) -> list[tuple[bytes, bytes | None]]:
    headers: list[tuple[bytes, bytes | None]] = []
    limit = len(data)
    for _ in range(count):
        name_at, name_end, at = _field(data, position, limit)
        value_at, value_end, position = _field(data, at, limit)
        headers.append((data[name_at:name_end], data[value_at:value_end] if value_end >= 0 else None))
    return headers


def wrap_int64(value: int) -> int:
    """``value`` with the overflow of Java's ``long``: a timestamp from 2**63 on becomes negative."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
