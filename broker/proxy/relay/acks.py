"""The acks of a Produce, read from its bytes: with acks=0 it gets no response."""

from __future__ import annotations

import struct

from oncelog.wire.compiler import uvarint
from oncelog.wire.errors import DecodeError

REQUEST_HEAD_BYTES = 12
"""Bytes of a request's size, API key, version and correlation id."""

_int16_at = struct.Struct(">h").unpack_from


def acks_of(view: memoryview, position: int, is_flexible: bool) -> int | None:
    """Return the acks of a Produce (version 3 and up) whose frame begins at ``position``; None if they are beyond the
    end of ``view``, or cannot be read.

    They follow the header and the transactional id.
    """
    try:
        length = _int16_at(view, position + REQUEST_HEAD_BYTES)[0]
        at = position + REQUEST_HEAD_BYTES + 2 + max(length, 0)
        if not is_flexible:
            length = _int16_at(view, at)[0]
            return int(_int16_at(view, at + 2 + max(length, 0))[0])
        if view[at]:  # the header has tagged fields
            at = _after_tags(view, at)
        else:
            at += 1
        length, at = uvarint(view, at)
        return int(_int16_at(view, at + max(length - 1, 0))[0])
    except (IndexError, struct.error, DecodeError):
        return None


def _after_tags(view: memoryview, at: int) -> int:
    count, at = uvarint(view, at)
    for _ in range(count):
        _, at = uvarint(view, at)
        size, at = uvarint(view, at)
        at += size
    return at
