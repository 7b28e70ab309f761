"""Zig-zag variable-length integers, as records inside a batch use them.

Each byte holds seven bits, lowest first, and has the top bit set unless it is the last: at most 5 bytes for 32 bits and
10 for 64. Source: ``org.apache.kafka.common.utils.ByteUtils``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from oncelog.wire.errors import DecodeError

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10


def append_varint(out: bytearray, value: int) -> None:
    """Append a signed 32- or 64-bit ``value`` in zig-zag form."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


@lru_cache(maxsize=16_384)
def varint(value: int) -> bytes:
    """Return a signed 32- or 64-bit ``value`` in zig-zag form; for lengths and deltas, which come again."""
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def _read_raw(data: Sequence[int], position: int, bytes_max: int) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(bytes_max):
        if position >= len(data):
            raise DecodeError("varint is cut short")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
    raise DecodeError(f"varint is longer than {bytes_max} bytes")


def read_varint(data: Sequence[int], position: int) -> tuple[int, int]:
    """The signed 32-bit number at ``position``, and the position after it. Raises DecodeError.

    Bits above the 32nd are dropped, as Java's ``int`` arithmetic drops them.
    """
    raw, position = _read_raw(data, position, VARINT_BYTES_MAX)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: Sequence[int], position: int) -> tuple[int, int]:
    """The signed 64-bit number at ``position``, and the position after it. Raises DecodeError."""
    raw, position = _read_raw(data, position, VARLONG_BYTES_MAX)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position
