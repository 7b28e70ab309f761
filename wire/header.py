"""Reads and writes request and response headers. Hand-written for speed: every request passes here.

Request header v1: api key (int16), api version (int16), correlation id (int32), client id (nullable
string). v2, of flexible versions: the same, with the client id still not compact, and a tag section.
Response header v0: correlation id; v1: correlation id and a tag section. An ApiVersions response always
has v0, so that a client can read it before it knows the broker's versions.

Source: ``RequestHeader.json``, ``ApiKeys.requestHeaderVersion``, KIP-482, KIP-511.
"""

from __future__ import annotations

import struct

from oncelog.wire.compiler import REQUEST_ELEMENTS_MAX, skip_tags
from oncelog.wire.errors import DecodeError
from oncelog.wire.primitives import Buffer

PRODUCE_KEY, FETCH_KEY, METADATA_KEY = 0, 1, 3
SASL_HANDSHAKE_KEY, API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY = 17, 18, 36
SHARE_FETCH_KEY, SHARE_ACKNOWLEDGE_KEY = 78, 79
FIXED_HEADER_SIZE = 8
"""Bytes of a request's key, version and correlation id, with which it can be refused."""

_unpack_start = struct.Struct(">hhih").unpack_from
_pack_start = struct.Struct(">hhih").pack
_unpack_correlation_id = struct.Struct(">i").unpack_from
_pack_v0 = struct.Struct(">i").pack
_pack_v1 = struct.Struct(">ix").pack


class RequestHeader:
    """``header_size``: bytes from the header's first byte to the request's body.

    ``client_id``: "" if the client sent null, as in Kafka.
    """

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "header_size")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str = "", header_size: int = 0
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.header_size = header_size

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, "
            f"header_size={self.header_size})"
        )


def read_request_header(buffer: Buffer, flexible: bool, offset: int = 0) -> RequestHeader:
    """The whole header. ``flexible``: whether the api version is (``Message.is_flexible``).

    Raises DecodeError.
    """
    try:
        api_key, api_version, correlation_id, length = _unpack_start(buffer, offset)
        pos = offset + 10
        if length > 0:
            stop = pos + length
            if stop > len(buffer):
                raise DecodeError(f"client id of {length} bytes where {len(buffer) - pos} are left")
            client_id = str(buffer[pos:stop], "utf-8")
            pos = stop
        elif length >= -1:
            client_id = ""
        else:
            raise DecodeError(f"client id of length {length}")
        if flexible:
            if buffer[pos]:
                pos, _ = skip_tags(buffer, pos, len(buffer), REQUEST_ELEMENTS_MAX)
            else:
                pos += 1
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos - offset)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> bytes:
    """Header v2, with no tagged fields, where the API version is ``flexible``, else v1.

    Raises ValueError for a client id of more than 32,767 bytes and for numbers out of bounds.
    """
    text = b"" if client_id is None else client_id.encode()
    try:
        start = _pack_start(api_key, api_version, correlation_id, -1 if client_id is None else len(text))
    except struct.error as error:
        raise ValueError(f"request header: {error}") from None
    return start + text + b"\0" if flexible else start + text


def has_tagged_response_header(api_key: int, flexible: bool) -> bool:
    """Whether the response to a request of this key and flexibility has header v1."""
    return flexible and api_key != API_VERSIONS_KEY


def encode_response_header(correlation_id: int, tagged: bool) -> bytes:
    """4 bytes, or 5 with the empty tag section of v1."""
    return _pack_v1(correlation_id) if tagged else _pack_v0(correlation_id)


def read_response_header(buffer: Buffer, tagged: bool, offset: int = 0) -> tuple[int, int]:
    """The correlation id, and the header's size in bytes.

    ``tagged``: the result of `has_tagged_response_header`. Raises DecodeError.
    """
    try:
        (correlation_id,) = _unpack_correlation_id(buffer, offset)
        pos = offset + 4
        if tagged:
            pos, _ = skip_tags(buffer, pos, len(buffer), REQUEST_ELEMENTS_MAX)
    except (IndexError, struct.error) as error:
        raise DecodeError(f"response header: {error}") from error
    return correlation_id, pos - offset
