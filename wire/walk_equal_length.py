"""The fastest reader of wire.walk: runs of records of equal length, whose fields have equal sizes too.

The length fields of such records stand a fixed distance apart. A strided slice takes one of these columns for the
whole run, and one comparison, in C, checks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import DecodeError
from oncelog.wire.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from oncelog.wire.walk import WalkResult

RUN_MIN = 24  # records; a shorter run is not worth the set-up
RISING_MAX = (
    1024  # records of a run whose timestamp deltas take more than a byte: they soon differ in a high one
)
_RUN_HEADERS_MAX = 8  # headers of each record in a run

_EVERY_BYTE = bytes(range(256))
_LOW_BYTES = _EVERY_BYTE[:128]
_HIGH_BYTES = _EVERY_BYTE[128:]
_ODD_BYTES = _EVERY_BYTE[1::2]

# The offset delta n as a varint is 2n: one byte below 64, two below 8192, three below 2**20.
BLOCK = 64  # records whose offset deltas differ only in their first byte
BIG_BLOCK = 8192  # … only in their first two bytes
DELTA_MAX = 1 << 20
_ONE_BYTE_DELTAS = bytes(range(0, 128, 2))
_FIRST_BYTES = bytes(range(128, 256, 2)) * (BIG_BLOCK // BLOCK)
_SECOND_BYTES = b"".join(bytes((high,)) * BLOCK for high in range(128))
_SECOND_OF_THREE = b"".join(bytes((high | 128,)) * BLOCK for high in range(128))


def read_equal_length(
    data: bytes | bytearray, position: int, limit: int, index: int, count: int, result: WalkResult
) -> tuple[int, int] | None:
    """Read the run that begins at ``position``. Returns its number of records and the position after them; None where
    it has fewer than `RUN_MIN`.

    The records of a run have equal lengths and equal field sizes: they differ only in the lowest bits of the timestamp
    delta and offset delta, and in the contents of key, value and headers.
    """
    if index >= DELTA_MAX:
        return None
    try:
        length, at = read_varint(data, position)
        stride = at - position + length
        if length < 1 or position + RUN_MIN * stride > limit:
            return None
        if data[position + stride] != data[position] or data[position + 2 * stride] != data[position]:
            return None
        timestamp_at = at + 1
        timestamp_delta, delta_at = read_varlong(data, timestamp_at)
        key_length_at = delta_at + (1 if index < BLOCK else 2 if index < BIG_BLOCK else 3)
        key_length, key_at = read_varint(data, key_length_at)
        value_length_at = key_at + max(key_length, 0)
        value_length, value_at = read_varint(data, value_length_at)
    except (DecodeError, IndexError):
        return None
    header_lengths = _header_lengths(data, value_at + max(value_length, 0), position + stride)
    if header_lengths is None or delta_at - timestamp_at > 5:
        return None
    block_end = BLOCK if index < BLOCK else (index | (BIG_BLOCK - 1)) + 1
    size = min(count, block_end) - index
    size = min(size, (limit - position) // stride)
    if delta_at > timestamp_at + 1:
        size = min(size, RISING_MAX)
    # Rising timestamps end most runs: checked first, they make the other columns shorter.
    same = (*range(timestamp_at + 1, delta_at), *range(position, at), *range(key_length_at, key_at))
    for column_at in (*same, *range(value_length_at, value_at), *header_lengths):
        column = data[column_at : position + size * stride : stride]
        if column != column[:1] * size:
            size -= len(column.lstrip(column[:1]))
            if size < RUN_MIN:
                return None
    end = position + size * stride
    times = data[timestamp_at:end:stride]
    if times.translate(None, _LOW_BYTES if delta_at == timestamp_at + 1 else _HIGH_BYTES):
        return None
    if not _deltas_follow(data[delta_at:end:stride], data[delta_at + 1 : end : stride], index):
        return None
    if index >= BIG_BLOCK and data[delta_at + 2 : end : stride] != bytes((index // BIG_BLOCK,)) * size:
        return None
    if key_length < 0:
        result.has_null_key = True
    _note_timestamp_deltas(times, ((timestamp_delta << 1) ^ (timestamp_delta >> 63)) >> 7 << 7, result)
    return size, end


def _header_lengths(data: bytes | bytearray, position: int, end: int) -> list[int] | None:
    """Positions of the header count and all header lengths; None unless each takes a byte and they end the record."""
    count = data[position] if position < end else 1
    if count & 129 or count > 2 * _RUN_HEADERS_MAX:
        return None
    lengths = [position]
    position += 1
    for _ in range(count):  # a key and a value each: zig-zag form has doubled the count already
        if position >= end or data[position] & 129:
            return None
        lengths.append(position)
        position += 1 + (data[position] >> 1)
    return lengths if position == end else None


def _deltas_follow(first: bytes | bytearray, second: bytes | bytearray, index: int) -> bool:
    """Whether the offset deltas are ``index``, ``index + 1``, …: ``first`` and ``second`` are columns of bytes."""
    if index < BLOCK:
        return first == _ONE_BYTE_DELTAS[index : index + len(first)]
    start = index % BIG_BLOCK
    stop = start + len(first)
    expected = _SECOND_BYTES if index < BIG_BLOCK else _SECOND_OF_THREE
    return first == _FIRST_BYTES[start:stop] and second == expected[start:stop]


def _note_timestamp_deltas(times: bytes | bytearray, high: int, result: WalkResult) -> None:
    """Note timestamp deltas: ``times`` are the lowest bytes of their raw varints, ``high`` the common rest."""
    positive = times.translate(None, _ODD_BYTES)
    if len(positive) != len(times):
        for byte in {*times}:
            raw = high | byte & 127
            result.note_timestamp_delta((raw >> 1) ^ -(raw & 1))
        return
    greatest = positive[-1]
    positive = positive.translate(None, _EVERY_BYTE[: greatest + 1])  # they mostly rise: nothing is left
    if positive:
        greatest = max(positive)
    result.note_timestamp_delta((high | greatest & 127) >> 1)
