"""The second reader of wire.walk: records whose varints take one or two bytes, one ``struct`` call for each."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING

from oncelog.wire.errors import DecodeError
from oncelog.wire.records import HEADERS_AT_ONCE, skip_headers
from oncelog.wire.walk_equal_length import BIG_BLOCK, BLOCK, DELTA_MAX

if TYPE_CHECKING:
    from oncelog.wire.walk import WalkResult

_BAD = -(1 << 20)  # an entry of a size table that means "no size"; it stays negative whatever is added

_SIZES: list[int] = []
"""Size table: two bytes, as a little-endian number -> bytes of the varint in them plus the length that it gives.

For varints of one and two bytes. An odd varint is negative, the length of null: it adds no bytes. Half a megabyte, made
on first use.
"""
_SHORT_SIZES: list[int] = []
"""The same for a record length that takes one byte; longer ones raise IndexError."""


def _make_sizes() -> None:
    one_byte = [1 if low & 1 else 1 + (low >> 1) for low in range(128)]
    for high in range(128):
        _SIZES.extend(one_byte)
        _SIZES.extend([2 if low & 1 else 2 + (high << 6) + (low - 128 >> 1) for low in range(128, 256)])
    _SIZES.extend((one_byte + [_BAD] * 128) * 128)
    _SHORT_SIZES.extend([_BAD if low & 1 else 1 + (low >> 1) for low in range(128)])


class _Kind:
    """How to read records whose length and deltas take given numbers of bytes: 1 or 2, the offset delta up to 3."""

    __slots__ = (
        "fixed",
        "key_mask",
        "length_sizes",
        "size_floor",
        "third_mask",
        "timestamp_bits",
        "timestamp_mask",
        "unpack",
    )

    def __init__(self, length_bytes: int, timestamp_bytes: int, delta_bytes: int) -> None:
        # The last byte of the previous record, the length, the two deltas, the first byte of the key length, and two
        # bytes that hold the value length if the key is null. The third byte of an offset delta, which is the same
        # throughout a block, is read together with the key length.
        formats = ("", "B", "H", "H")
        key = "B" if delta_bytes < 3 else "H"
        self.unpack = Struct(
            f"<B{formats[length_bytes]}x{formats[timestamp_bytes]}{formats[delta_bytes]}{key}H"
        ).unpack_from
        # key & key_mask is 0 only for a key length of one byte that was read alone; third_mask selects the third byte
        # of the offset delta.
        self.key_mask, self.third_mask = (129, 0) if delta_bytes < 3 else (0xFFFF, 0xFF)
        self.length_sizes, self.size_floor = (_SHORT_SIZES, 0) if length_bytes == 1 else (_SIZES, 65)
        self.timestamp_mask, self.timestamp_bits = (0x80, 0) if timestamp_bytes == 1 else (0x8080, 0x80)
        # Bytes of a record beside key and value: attributes, key length and header count take one each. It is also the
        # distance from the last byte of the previous record to the value length, where there is no key.
        self.fixed = length_bytes + timestamp_bytes + delta_bytes + 3


_KINDS = {(a, b, c): _Kind(a, b, c) for a in (1, 2) for b in (1, 2) for c in (1, 2, 3)}
_two_bytes = Struct("<H").unpack_from


def read_short_varints(
    data: bytes | bytearray,
    position: int,
    limit: int,
    index: int,
    count: int,
    headers: bool,
    result: WalkResult,
) -> tuple[int, int]:
    """Read records of one `_Kind`. Returns their number, which may be 0, and the position after them.

    With ``headers`` the records may have headers, which costs more.
    """
    if (
        index >= DELTA_MAX or position == 0 or position + 4 > limit
    ):  # it needs the byte before and the first fields
        return 0, position
    if not _SIZES:
        _make_sizes()
    length_bytes = 1 if data[position] < 128 else 2
    timestamp_bytes = 1 if data[position + length_bytes + 1] < 128 else 2
    stop = min(count, (index | (BLOCK - 1)) + 1)
    # Within a block an offset delta's first two bytes, as a little-endian number, grow by 2 with each record.
    null_key = 1
    if index < BLOCK:
        delta_bytes, first = 1, 2 * index
    else:
        delta_bytes, first = 2, index // BLOCK << 8 | 128 | 2 * index & 127
        if index >= BIG_BLOCK:
            delta_bytes, first = 3, first & 0x7FFF | 0x8000
            null_key = 1 << 8 | index // BIG_BLOCK
    deltas = range(first, first + 2 * (stop - index), 2)
    kind = _KINDS[length_bytes, timestamp_bytes, delta_bytes]
    done, keyed, cursor, greatest, negative = _read_kind(data, position - 1, deltas, null_key, kind, headers)
    if done == 0:
        return 0, position
    if cursor >= limit or (data[cursor] and not headers):
        raise DecodeError(f"record {index + done - 1}: headers where the record ends")
    if keyed < done:
        result.has_null_key = True
    for timestamp in (greatest, *negative) if greatest >= 0 else negative:
        raw = timestamp if timestamp_bytes == 1 else timestamp >> 8 << 7 | timestamp & 127
        result.note_timestamp_delta((raw >> 1) ^ -(raw & 1))
    return done, cursor + 1


def _read_kind(
    data: bytes | bytearray, cursor: int, deltas: range, null_key: int, kind: _Kind, headers: bool
) -> tuple[int, int, int, int, list[int]]:
    """Read records of ``kind`` until one is not or ``deltas`` are exhausted; ``cursor`` is the byte before the first.

    Returns: the number of records; how many of them have a key; the position of the last byte of the last record (its
    header count, not yet checked); the greatest timestamp delta that is not negative (-1: none); the negative ones.
    Timestamp deltas are raw varints.
    """
    unpack = kind.unpack
    length_sizes = kind.length_sizes
    size_floor = kind.size_floor
    mask = kind.timestamp_mask
    bits = kind.timestamp_bits
    fixed = kind.fixed
    # Without headers a record is exactly as long as its fields, and its last byte, the header count 0, is checked with
    # the next record. With headers a record is never exactly that long: the rest of it must be headers.
    exact = _BAD if headers else fixed
    last_byte_mask = 0 if headers else 255
    key_mask, third_mask = kind.key_mask, kind.third_mask
    third = null_key & third_mask
    sizes = _SIZES
    keyed = 0
    greatest = last_timestamp = -1
    negative: list[int] = []
    delta = deltas.start
    try:
        for delta in deltas:
            before, length, timestamp, found_delta, key, value = unpack(data, cursor)
            size = length_sizes[length]
            if found_delta != delta or before & last_byte_mask or size <= size_floor:
                break
            if key == null_key:
                value_size = sizes[value]
                if size - value_size != exact and not (
                    headers and _fills(data, cursor + fixed, value_size, cursor + size + 1)
                ):
                    break
            else:
                if key & key_mask:
                    key_size = _long_key_size(data, cursor + fixed - 1)
                    if key_size < 0 or key & third_mask != third:
                        break
                else:
                    key_size = key >> 1
                value = _two_bytes(data, cursor + fixed + key_size)[0]
                value_size = sizes[value]
                if size - key_size - value_size != exact and not (
                    headers and _fills(data, cursor + fixed + key_size, value_size, cursor + size + 1)
                ):
                    break
                keyed += 1
            if timestamp != last_timestamp:
                if timestamp & mask != bits:
                    keyed -= key != null_key
                    break
                last_timestamp = timestamp
                if timestamp & 1:
                    negative.append(timestamp)
                elif timestamp > greatest:
                    greatest = timestamp
            cursor += size
        else:
            delta = deltas.stop
    except (
        IndexError,
        StructError,
        DecodeError,
    ):  # a length of two bytes where one was expected, or past the end
        pass
    return (delta - deltas.start) // 2, keyed, cursor, greatest, negative


def _long_key_size(data: bytes | bytearray, position: int) -> int:
    """Bytes of the key whose length is at ``position``, plus the second byte of that length; negative where the length
    takes more than two bytes or is negative.
    """
    length = _two_bytes(data, position)[0]
    return -1 if length & 1 else _SIZES[length] - 1


def _fills(data: bytes | bytearray, position: int, size: int, end: int) -> bool:
    """Whether headers that begin ``size`` bytes after ``position`` end at ``end``; False for a ``size`` not above 0."""
    return size > 0 and skip_headers(data, position + size, end, HEADERS_AT_ONCE) == end
