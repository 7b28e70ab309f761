"""`PassedProxies`: finds loops of proxies, where each proxy's upstream is the next proxy.

A client's ApiVersions carries the ids of the proxies that it has passed, in a tagged field of its header; each adds its
own. A proxy that finds its own there knows that the connection leads back to it. Brokers skip tagged fields that they
do not know (KIP-482).

So each upstream connection begins with an ApiVersions of version 3 or later: the client's, or, where the client begins
with another request, one of the proxy's own; its response answers a client's older ApiVersions, too. If the proxy logs
in upstream, its log-in begins with an ApiVersions of its own, which carries the ids with which the client has come. The
proxy also sends one when it starts, so the start that would close a loop fails.
"""

from __future__ import annotations

import struct

from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.entropy import unguessable
from oncelog.wire.compiler import check_tags, put_uvarint, tag_header, uvarint
from oncelog.wire.errors import DecodeError, ErrorCode
from oncelog.wire.header import API_VERSIONS_KEY
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.primitives import Buffer

TAG = 0x6F6E63
"""Of the field with the ids. Kafka numbers its own from 0."""
ID_BYTES = 16
PASSED_MAX = 64
"""Proxies that a connection may pass. With more it is taken for a loop."""
LOOP_ERROR = ErrorCode.BROKER_NOT_AVAILABLE
"""The error that tells a client that its ApiVersions has come back. No broker responds to an ApiVersions with it."""
LOOP = "a loop of proxies: the --upstream of one of them, or what its cluster advertises, leads back"

_CLIENT_ID_AT = 8
_key_and_version_at = struct.Struct(">hh").unpack_from
_length_at = struct.Struct(">h").unpack_from


class PassedProxies:
    """``own_id`` is that of this proxy, by default a new one."""

    def __init__(self, own_id: bytes | None = None) -> None:
        self._own = unguessable(ID_BYTES) if own_id is None else own_id

    def is_loop(self, ids: bytes) -> bool:
        """Whether a connection that has passed the proxies with these ids has passed this one before, or too many."""
        return len(ids) > PASSED_MAX * ID_BYTES or any(
            ids[at : at + ID_BYTES] == self._own for at in range(0, len(ids), ID_BYTES)
        )

    def with_own_id(self, frame: Buffer, passed_ids: bytes = b"") -> Buffer:
        """Return a request, without its size, as it goes upstream: an ApiVersions says that it has passed this proxy,
        and those with ``passed_ids``. Raises DecodeError.
        """
        if not can_carry_ids(frame):
            return frame
        tags, start, stop = _tags(frame)
        tags[TAG] = tags.get(TAG, b"") + passed_ids + self._own
        out = bytearray(frame[:start])
        put_uvarint(out, len(tags))
        for tag in sorted(tags):
            put_uvarint(out, tag)
            put_uvarint(out, len(tags[tag]))
            out += tags[tag]
        out += frame[stop:]
        return out


class LoopError(CloseConnection):
    """An upstream connection would lead back to the proxy that opens it, or into a loop of others."""

    def __init__(self) -> None:
        super().__init__(LOOP)


def can_carry_ids(frame: Buffer) -> bool:
    """Whether a request has a header with tagged fields, and is one that carries ids."""
    return is_api_versions(frame) and ApiVersionsRequest.is_flexible(_key_and_version_at(frame)[1])


def is_api_versions(frame: Buffer) -> bool:
    """Whether a request is an ApiVersions."""
    return bool(_key_and_version_at(frame)[0] == API_VERSIONS_KEY)


def ids_of(frame: Buffer) -> bytes:
    """Return the ids that a request carries. Raises DecodeError."""
    return _tags(frame)[0].get(TAG, b"") if can_carry_ids(frame) else b""


def _tags(frame: Buffer) -> tuple[dict[int, bytes], int, int]:
    """Return the tagged fields of a request's header, and where they begin and end. Raises DecodeError."""
    try:
        start = _CLIENT_ID_AT + 2 + max(_length_at(frame, _CLIENT_ID_AT)[0], 0)
        count, at = uvarint(frame, start)
        check_tags(count)
        tags: dict[int, bytes] = {}
        previous = -1
        for _ in range(count):
            previous, size, at = tag_header(frame, at, len(frame), previous)
            tags[previous] = bytes(frame[at : at + size])
            at += size
    except (IndexError, struct.error) as error:
        raise DecodeError(f"request header: {error}") from error
    return tags, start, at
