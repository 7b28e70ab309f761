"""The second gear of wire.walk: records whose fields have the usual sizes, at one struct call a record."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING

from oncelog.wire.errors import DecodeError
from oncelog.wire.records import skip_headers
from oncelog.wire.walk_runs import BIG_BLOCK, BLOCK, DELTA_MAX

if TYPE_CHECKING:
    from oncelog.wire.walk import Walk

_BAD = -(1 << 20)  # in a table of sizes: not a size, whatever is added to it

_SIZES: list[int] = []
"""For two bytes as a little-endian number, the bytes of the varint there and of what it is the length of.

Varints of one and two bytes; odd ones are negative, the length of nothing. Half a megabyte, made on first use.
"""
_SHORT_SIZES: list[int] = []
"""The same for a record's length of one byte; two bytes are an IndexError."""


def _make_sizes() -> None:
    one_byte = [1 if low & 1 else 1 + (low >> 1) for low in range(128)]
    for high in range(128):
        _SIZES.extend(one_byte)
        _SIZES.extend([2 if low & 1 else 2 + (high << 6) + (low - 128 >> 1) for low in range(128, 256)])
    _SIZES.extend((one_byte + [_BAD] * 128) * 128)
    _SHORT_SIZES.extend([_BAD if low & 1 else 1 + (low >> 1) for low in range(128)])


class _Kind:
    """Records whose length, timestamp delta and offset delta take so many bytes (1 or 2) each."""

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
        # The last byte of the record before, the length, the two deltas, the key length (its first byte), and two
        # bytes which are the value length where the key is null. The third byte of an offset delta is read with
        # the key length: it is the same in a whole block.
        formats = ("", "B", "H", "H")
        key = "B" if delta_bytes < 3 else "H"
        self.unpack = Struct(
            f"<B{formats[length_bytes]}x{formats[timestamp_bytes]}{formats[delta_bytes]}{key}H"
        ).unpack_from
        # No bit of the first where a key's length is one byte and stands alone; the second is that third byte's.
        self.key_mask, self.third_mask = (129, 0) if delta_bytes < 3 else (0xFFFF, 0xFF)
        self.length_sizes, self.size_floor = (_SHORT_SIZES, 0) if length_bytes == 1 else (_SIZES, 65)
        self.timestamp_mask, self.timestamp_bits = (0x80, 0) if timestamp_bytes == 1 else (0x8080, 0x80)
        # Bytes of a record beside key and value: attributes, key length and header count take one each. The
        # value length of a record without a key stands as many bytes behind the last byte of the one before.
        self.fixed = length_bytes + timestamp_bytes + delta_bytes + 3


_KINDS = {(a, b, c): _Kind(a, b, c) for a in (1, 2) for b in (1, 2) for c in (1, 2, 3)}
_two_bytes = Struct("<H").unpack_from


def read_stretch(
    data: bytes, position: int, limit: int, index: int, count: int, headers: bool, found: Walk
) -> tuple[int, int]:
    """How many records could be read before one was of another kind, and the position after them.

    With ``headers`` they may have some, which costs more.
    """
    if index >= DELTA_MAX or position == 0 or position + 4 > limit:  # the byte before, and the fields' sizes
        return 0, position
    if not _SIZES:
        _make_sizes()
    length_bytes = 1 if data[position] < 128 else 2
    timestamp_bytes = 1 if data[position + length_bytes + 1] < 128 else 2
    stop = min(count, (index | (BLOCK - 1)) + 1)
    # The first two bytes of an offset delta, read as a little-endian number, also grow by 2 within a block.
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
    done, keyed, cursor, latest, negative = _read_alike(data, position - 1, deltas, null_key, kind, headers)
    if done == 0:
        return 0, position
    if cursor >= limit or (data[cursor] and not headers):
        raise DecodeError(f"record {index + done - 1}: headers where the record ends")
    if keyed < done:
        found.has_null_key = True
    for timestamp in (latest, *negative) if latest >= 0 else negative:
        raw = timestamp if timestamp_bytes == 1 else timestamp >> 8 << 7 | timestamp & 127
        found.see((raw >> 1) ^ -(raw & 1))
    return done, cursor + 1


def _read_alike(
    data: bytes, cursor: int, deltas: range, null_key: int, kind: _Kind, headers: bool
) -> tuple[int, int, int, int, list[int]]:
    """Read records of a kind, from the byte before the first, until one is not or the deltas are through.

    How many they were and how many had a key, the last byte of the last (its header count, not yet looked at),
    the greatest timestamp delta that is not negative (-1: none) and the negative ones, as they stand there.
    """
    unpack = kind.unpack
    length_sizes = kind.length_sizes
    size_floor = kind.size_floor
    mask = kind.timestamp_mask
    bits = kind.timestamp_bits
    fixed = kind.fixed
    # Without headers a record is as long as its parts, and its last byte, their count, is looked at with the
    # next one. With them it never is, and so what is left of it has to be headers.
    exact = _BAD if headers else fixed
    last_byte_mask = 0 if headers else 255
    key_mask, third_mask = kind.key_mask, kind.third_mask
    third = null_key & third_mask
    sizes = _SIZES
    keyed = 0
    latest = last_timestamp = -1
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
                elif timestamp > latest:
                    latest = timestamp
            cursor += size
        else:
            delta = deltas.stop
    except (
        IndexError,
        StructError,
        DecodeError,
    ):  # a length of two bytes where one was expected, or past the end
        pass
    return (delta - deltas.start) // 2, keyed, cursor, latest, negative


def _long_key_size(data: bytes, position: int) -> int:
    """Bytes of the key whose length stands there, and of all of that but its first; negative where it is not usual.

    A negative length counts as that: what is null has another.
    """
    length = _two_bytes(data, position)[0]
    return -1 if length & 1 else _SIZES[length] - 1


def _fills(data: bytes, position: int, size: int, end: int) -> bool:
    """Whether the headers that stand ``size`` bytes (a bad one is negative) after ``position`` go to ``end``."""
    return size > 0 and skip_headers(data, position + size, end) == end
