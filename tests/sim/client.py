"""A client of one connection, for tests that drive a broker without a socket: one request, one answer."""

from __future__ import annotations

import struct
from typing import Any

from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.header import encode_response_header, has_tagged_response_header
from oncelog.wire.schema import Message
from tests.sim.transport import MemoryTransport

CLIENT_ID = b"simulated"


class ConnectionEndedError(Exception):
    """The broker closed the connection."""


class SimClient:
    """Requests leave in order and answers come in order; several may be under way (`send`, then `receive`)."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._next_correlation_id = 0
        self._unread = bytearray()

    async def ask(self, request: Message, version: int, response: type[Message]) -> Any:
        await self.send(request, version)
        return await self.receive(response, version)

    async def send(self, request: Message, version: int) -> None:
        header = (
            struct.pack(">hhih", request.API_KEY, version, self._next_correlation_id, len(CLIENT_ID))
            + CLIENT_ID
        )
        if type(request).is_flexible(version):
            header += b"\0"
        self._next_correlation_id += 1
        await self.send_frame(header + request.encode(version))

    async def send_frame(self, frame: bytes) -> None:
        await self.send_bytes(struct.pack(">i", len(frame)) + frame)

    async def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            sent = self.transport.send(view)
            if sent == WOULD_BLOCK:
                await self.transport.wait_writable()
            else:
                view = view[sent:]

    async def receive(self, response: type[Message], version: int) -> Any:
        frame = await self.receive_frame()
        tagged = has_tagged_response_header(response.API_KEY, response.is_flexible(version))
        return response.decode(frame, version, len(encode_response_header(0, tagged)))

    async def receive_frame(self) -> bytes:
        size = struct.unpack(">i", await self._receive_exactly(4))[0]
        return await self._receive_exactly(size)

    async def _receive_exactly(self, size: int) -> bytes:
        buffer = bytearray(64 * 1024)
        while len(self._unread) < size:
            count = self.transport.receive_into(memoryview(buffer))
            if count == WOULD_BLOCK:
                await self.transport.wait_readable()
            elif count == 0:
                raise ConnectionEndedError
            else:
                self._unread += buffer[:count]
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def unread(self) -> int:
        """Bytes of answers that have come and were not read."""
        return len(self._unread) + self.transport.pending()
