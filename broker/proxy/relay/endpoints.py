"""Node endpoints at the end of a response, found without decoding it.

They are the last field of a Produce response (version 10 and up) and of a Fetch response (16 and up), a tagged one of
tag 0 (KIP-951). So a response with them ends with ``01 00``, the field's size as an unsigned varint, and so many
bytes. Records may end so, too: a small response is decoded before anything is changed, and through a large one
`FetchWalk` goes to the field.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.proxy.relay.fetch_walk import FetchWalk
from oncelog.wire.compiler import put_uvarint
from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

SEARCHED_BYTES_MAX = 8 * 1024
"""Bytes of the largest response that is searched for node endpoints. `FetchWalk` walks through a larger Fetch response;
a larger Produce response is decoded.
"""
ENDPOINTS_TAG = 0
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


def find_endpoints(response: bytes) -> list[Endpoint]:
    """Return the rows at the end of a response; none if it ends with something else."""
    size = len(response)
    at = response.find(_MARK)
    while at >= 0:
        value, position = _uvarint(response, at + 2)
        if position and position + value == size:
            rows = _rows(response, position)
            if rows:
                return rows
        at = response.find(_MARK, at + 1)
    return []


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


def has_endpoints(response: memoryview, *, is_fetch: bool) -> bool:
    """Whether a response, with its size, seems to end with node endpoints. Raises DecodeError for a large one that is
    malformed.

    The last row ends with its port (an int32 below 65536, so ``00 00 hi lo``), its rack (``00`` for none) and ``00``.
    Most responses without endpoints end with ``00 00 00``. A row does only if it has no rack and ``lo`` is 0: it ends
    with ``00 00 hi 00 00 00``, and ``hi`` is not 0. So few responses are searched.
    """
    end = bytes(response[-6:])
    if end[3:] == b"\0\0\0" and (end[2] == 0 or end[0] or end[1]):
        return False
    size = len(response)
    if size <= SEARCHED_BYTES_MAX:
        return bool(find_endpoints(bytes(response)))
    if not is_fetch:
        return True
    at, _ = FetchWalk(size).advance(response, 0)
    return response[at] != 0


def rewrite_fields(fields: memoryview, address_of: Callable[[Endpoint], tuple[str, int]]) -> None:
    """Rewrite the node endpoints in a response's own tagged ``fields``, if there are any, in place and in as many
    bytes: the client has the response's size already. ``address_of`` gives a node's address for the client. Raises
    DecodeError for malformed fields.

    A shorter field is filled up with an unknown tagged field, which clients skip. If there is no room, or beside other
    fields, the endpoints become such a field, and clients ask for the metadata.
    """
    data = bytes(fields)
    if data[0] == 0 or data[1] != ENDPOINTS_TAG:
        return
    size, position = _uvarint(data, 2)
    rows = _rows(data[: position + size], position) if position else []
    if not rows:
        raise DecodeError("malformed node endpoints")
    content = bytearray(_uvarint_bytes(len(rows) + 1))
    for row in rows:
        host, port = address_of(row)
        encoded = host.encode()
        rack_at = row.host_at + _string_size(data, row.host_at) + 4
        content += data[row.host_at - 4 : row.host_at]
        content += _uvarint_bytes(len(encoded) + 1) + encoded + struct.pack(">i", port)
        content += data[rack_at : row.end]
    field = b"\x00" + _uvarint_bytes(len(content)) + content
    room = len(data) - 1 - len(field)
    filler = b"" if room == 0 else _filler(room)
    if data[0] == 1 and len(filler) == room:
        fields[:] = (b"\x02" if filler else b"\x01") + field + filler
    else:
        # Make an unknown field of it. Tags ascend, so it gets the one below the next field's. If the next is 1, only
        # that of the endpoints is below it: it gets the filler's, out of order.
        after = data[position + size] if data[0] > 1 and position + size < len(data) else FILLER_TAG + 1
        fields[1] = min(FILLER_TAG, after - 1) or FILLER_TAG


def _filler(room: int) -> bytes:
    """Return an unknown tagged field of ``room`` bytes, or one of another size if no field has exactly that size."""
    size = max(room - 2, 0)
    if size >= 0x80:  # its own size takes two bytes
        size -= 1
    return bytes((FILLER_TAG,)) + _uvarint_bytes(size) + bytes(size)


def _string_size(data: bytes, position: int) -> int:
    """Return the bytes of the compact string at ``position``, with its length."""
    length, start = _uvarint(data, position)
    return start - position + length - 1


def _uvarint_bytes(value: int) -> bytes:
    out = bytearray()
    put_uvarint(out, value)
    return bytes(out)
