"""Node endpoints at the end of a response, found without decoding it.

They are the last field of a Produce response (version 10 and up) and of a Fetch response (16 and up), a tagged one of
tag 0 (KIP-951). So a response with them ends with ``01 00``, the field's size as an unsigned varint, and so many
bytes. Bytes that look so by chance are told apart by their structure, and a response that is whole in memory is
decoded before anything is changed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.wire.primitives import Buffer

TAIL_BYTES = 8 * 1024
"""Bytes at the end of a response in which its node endpoints are looked for: those of about 150 nodes."""
_MARK = b"\x01\x00"
FILLER_TAG = 0x7F
"""A tag that no response has."""
_UVARINT_BYTES_MAX = 3

_int32_at = struct.Struct(">i").unpack_from


class Endpoint(NamedTuple):
    """One row: the node, and where the bytes of its host, its port and its end are."""

    node_id: int
    host: str
    port: int
    host_at: int
    """Position of the host's length."""
    end: int


def find_endpoints(tail: bytes) -> tuple[int, list[Endpoint]] | None:
    """Return where the field begins (its mark) and its rows, None if there is none. ``tail`` is the end of a
    response.
    """
    size = len(tail)
    at = tail.find(_MARK)
    while at >= 0:
        value, position = _uvarint(tail, at + 2)
        if position and position + value == size:
            rows = _rows(tail, position)
            if rows:
                return at, rows
        at = tail.find(_MARK, at + 1)
    return None


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Return the value and the position after it, 0 if there is none of a sensible length."""
    value = shift = 0
    for byte in data[position : position + _UVARINT_BYTES_MAX]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, 0


def _rows(data: bytes, position: int) -> list[Endpoint]:
    """Return the rows of the array at ``position``, which is the last thing in ``data``; none if it is not one."""
    count, position = _uvarint(data, position)
    rows = []
    size = len(data)
    for _ in range(count - 1):
        if not position or position + 4 >= size:
            return []
        (node_id,) = _int32_at(data, position)
        host_at = position + 4
        length, position = _uvarint(data, host_at)
        stop = position + length - 1
        if not position or not length or stop + 4 > size:
            return []
        try:
            host = data[position:stop].decode()
        except UnicodeDecodeError:
            return []
        (port,) = _int32_at(data, stop)
        length, position = _uvarint(data, stop + 4)  # the rack
        position += max(length - 1, 0)
        if position >= size or data[position] or node_id < 0 or not 0 <= port < 65536:
            return []
        position += 1  # no tagged fields
        rows.append(Endpoint(node_id, host, port, host_at, position))
    return rows if position == size else []


def has_endpoints(view: Buffer) -> bool:
    """Whether a response ends with node endpoints, as far as its last bytes tell.

    The last row ends with its port (an int32 below 65536), its rack and ``00``. Most responses without endpoints end
    with ``00 00 00``; a row does only if it has no rack and the port's last byte is 0, and then the bytes before that
    are 0, 0 and another one than 0. So few responses are searched.
    """
    end = bytes(view[-6:])
    if end[3:] == b"\0\0\0" and (end[2] == 0 or end[0] or end[1]):
        return False
    return find_endpoints(bytes(view[-TAIL_BYTES:])) is not None


def rewrite_tail(tail: memoryview, address_of: Callable[[Endpoint], tuple[str, int] | None]) -> None:
    """Rewrite the node endpoints at the end of ``tail``, if there are any, in place: the response's size has left.
    Nothing changes if ``address_of`` knows one of them not.

    A shorter field is filled up with an unknown tagged field, which clients skip. If there is no room, the endpoints
    become such a field, and clients ask for the metadata.
    """
    data = bytes(tail)
    found = find_endpoints(data)
    if found is None:
        return
    at, rows = found
    content = bytearray(_pack_uvarint(len(rows) + 1))
    for row in rows:
        address = address_of(row)
        if address is None:
            return
        host, port = address
        encoded = host.encode()
        rack_at = row.host_at + _string_size(data, row.host_at) + 4
        content += data[row.host_at - 4 : row.host_at]
        content += _pack_uvarint(len(encoded) + 1) + encoded + struct.pack(">i", port)
        content += data[rack_at : row.end]
    field = b"\x00" + _pack_uvarint(len(content)) + content
    room = len(data) - at - 1 - len(field)
    if room == 0:
        tail[at:] = b"\x01" + field
    elif room >= 2:
        size = room - 2
        if size >= 0x80:  # its own size takes two bytes
            size -= 1
        filler = bytes((FILLER_TAG,)) + _pack_uvarint(size) + bytes(size)
        if len(filler) == room:
            tail[at:] = b"\x02" + field + filler
        else:
            tail[at + 1] = FILLER_TAG
    else:
        tail[at + 1] = FILLER_TAG


def _string_size(data: bytes, position: int) -> int:
    """Return the bytes of the compact string at ``position``, with its length."""
    length, start = _uvarint(data, position)
    return start - position + length - 1


def _pack_uvarint(value: int) -> bytes:
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)
