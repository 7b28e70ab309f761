"""Frames, in which requests and responses are sent: a size (int32), then so many bytes.

Everything that reads or writes frames uses this module, but for the broker's own connection
(``oncelog.broker.net.connection``), which reads requests straight from a buffer that all connections share.
"""

from __future__ import annotations

import struct

from oncelog.wire.errors import DecodeError
from oncelog.wire.header import encode_request_header, has_tagged_response_header, read_response_header
from oncelog.wire.primitives import Buffer
from oncelog.wire.schema import Message, Request, ResponseT_co

SIZE_BYTES = 4
"""Bytes of a frame before its payload."""
FRAME_BYTES_MAX = 2**31 - 1
"""The largest payload, in bytes, that fits the size field."""

_size = struct.Struct(">i")


def encode_frame_size(size: int) -> bytes:
    """Return the size field before a payload of ``size`` bytes. Raises ValueError for more than ``FRAME_BYTES_MAX``."""
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes")
    return _size.pack(size)


def encode_frame(*payload: Buffer) -> bytes:
    """One frame of these pieces of a payload. Raises ValueError as `encode_frame_size` does."""
    return b"".join((encode_frame_size(sum(map(len, payload))), *payload))


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None = None
) -> bytes:
    """A request's whole frame: size, header, body.

    Raises ValueError where `Message.encode` or `encode_request_header` does.
    """
    flexible = request.is_flexible(version)
    header = encode_request_header(request.API_KEY, version, correlation_id, client_id, flexible)
    return encode_frame(header, request.encode(version))


def decode_response(
    request: type[Request[ResponseT_co]], version: int, payload: Buffer
) -> tuple[int, ResponseT_co]:
    """The correlation id and the response to a request of this type and version, from a frame's payload.

    Record bytes are views into ``payload``. Raises DecodeError.
    """
    response = request.response_type()
    tagged = has_tagged_response_header(request.API_KEY, request.is_flexible(version))
    correlation_id, header_size = read_response_header(payload, tagged)
    return correlation_id, response.decode(payload, version, header_size)


class FrameReader:
    """Bytes in, frames out: `feed` it what was received, then take frames until there is none.

    It holds only what it was fed: a size that announces much takes no memory before the bytes come.
    """

    __slots__ = ("_data", "_payload_bytes_max")

    def __init__(self, payload_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._data = bytearray()
        self._payload_bytes_max = payload_bytes_max

    def feed(self, received: Buffer) -> None:
        """Take bytes that follow those fed before."""
        self._data += received

    def next_frame(self) -> bytes | None:
        """The payload of the next frame, or None while it is not complete.

        Raises DecodeError for a size that is negative or larger than ``payload_bytes_max``.
        """
        missing = self.missing()
        if missing:
            return None
        (size,) = _size.unpack_from(self._data)
        end = SIZE_BYTES + size
        payload = bytes(memoryview(self._data)[SIZE_BYTES:end])
        del self._data[:end]
        return payload

    def missing(self) -> int:
        """How many bytes the next frame lacks, as far as is known: 0 when it is complete.

        Raises DecodeError as `next_frame` does.
        """
        have = len(self._data)
        if have < SIZE_BYTES:
            return SIZE_BYTES - have
        size: int = _size.unpack_from(self._data)[0]
        if not 0 <= size <= self._payload_bytes_max:
            begin = bytes(self._data[:SIZE_BYTES])  # text is of another protocol, such as HTTP
            text = f" (the text {begin.decode()!r})" if begin.isalnum() else ""
            raise DecodeError(f"a frame of {size} bytes{text}; the limit is {self._payload_bytes_max}")
        return max(0, SIZE_BYTES + size - have)

    def __len__(self) -> int:
        """Bytes that were fed and not given out."""
        return len(self._data)
