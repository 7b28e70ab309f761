"""A client with one connection, for tests of a broker without a socket: one request, one response."""

from __future__ import annotations

from typing import Any

from oncelog.wire.framing import FrameReader, encode_frame, encode_request
from oncelog.wire.header import has_tagged_response_header, read_response_header
from oncelog.wire.schema import Message
from tests.harness.sim_frames import receive_frame, send_all
from tests.harness.sim_network import MemoryTransport

CLIENT_ID = "simulated"


class ConnectionEndedError(Exception):
    """The broker closed the connection."""


class SimClient:
    """Requests and responses keep their order. Several requests may be in flight: `send`, then `receive`."""

    def __init__(self, transport: MemoryTransport, client_id: str = CLIENT_ID) -> None:
        self.transport = transport
        self._client_id = client_id
        self._next_correlation_id = 0
        self._frames = FrameReader()

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        await self.send(request, version)
        return await self.receive(response, version)

    async def send(self, request: Message, version: int) -> None:
        frame = encode_request(request, version, self._next_correlation_id, self._client_id)
        self._next_correlation_id += 1
        await self.send_bytes(frame)

    async def send_frame(self, payload: bytes) -> None:
        await self.send_bytes(encode_frame(payload))

    async def send_bytes(self, data: bytes) -> None:
        await send_all(self.transport, data)

    async def receive(self, response: type[Message], version: int) -> Any:
        payload = await self.receive_frame()
        tagged = has_tagged_response_header(response.API_KEY, response.is_flexible(version))
        _, header_size = read_response_header(payload, tagged)
        return response.decode(payload, version, header_size)

    async def receive_frame(self) -> bytes:
        payload = await receive_frame(self.transport, self._frames)
        if payload is None:
            raise ConnectionEndedError
        return payload

    def unread(self) -> int:
        """Return the bytes of responses that have arrived and were not read."""
        return len(self._frames) + self.transport.pending()
