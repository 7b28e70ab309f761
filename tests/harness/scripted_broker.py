"""The broker's end of a connection, scripted by a test: it receives requests, and sends right or wrong responses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from oncelog.wire.framing import FrameReader, encode_frame
from oncelog.wire.header import (
    encode_response_header,
    has_tagged_response_header,
    read_request_header,
)
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.schema import Message, Request
from tests.harness.sim_frames import receive_frame, send_all
from tests.harness.sim_network import MemoryListener, MemoryTransport

RequestT = TypeVar("RequestT", bound=Message)
Respond = Callable[[Any, int], Message | None]
"""From a request and its version to the response; None: there is none."""


class Received(Generic[RequestT]):
    """A request that came, with its header."""

    def __init__(self, request: RequestT, version: int, correlation_id: int, client_id: str) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def response_header(self) -> bytes:
        kind = type(self.request)
        tagged = has_tagged_response_header(kind.API_KEY, kind.is_flexible(self.version))
        return encode_response_header(self.correlation_id, tagged)


class PeerEndedError(Exception):
    """The client closed the connection."""


class ScriptedPeer:
    """One connection as a broker has it."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._frames = FrameReader()

    async def receive_payload(self) -> bytes:
        """The next request's header and body. Raises PeerEndedError at the end of the stream."""
        payload = await receive_frame(self.transport, self._frames)
        if payload is None:
            raise PeerEndedError
        return payload

    async def receive(self, *kinds: type[RequestT]) -> Received[RequestT]:
        """The next request, which is one of these."""
        payload = await self.receive_payload()
        key, version = struct.unpack_from(">hh", payload)
        kind = {one.API_KEY: one for one in kinds}[key]
        header = read_request_header(payload, kind.is_flexible(version))
        request = kind.decode(payload, version, header.header_size)
        return Received(request, version, header.correlation_id, header.client_id)

    async def respond(self, received: Received[Any], response: Message, version: int | None = None) -> None:
        """Send the response in the request's version, unless another is given."""
        body = response.encode(received.version if version is None else version)
        await self.send_bytes(encode_frame(received.response_header(), body))

    async def send_bytes(self, data: bytes) -> None:
        await send_all(self.transport, data)


class ScriptedBroker:
    """A broker that knows the requests it was given responses for (`on`), and announces those."""

    def __init__(self, listener: MemoryListener) -> None:
        self.listener = listener
        self.seen: list[tuple[int, Message]] = []
        """Every request but ApiVersions, with the number of its connection, from 0 on."""
        self.versions: dict[int, tuple[int, int]] = {}
        """Announced in place of all versions that are declared, by API key."""
        self._responses: dict[type[Request[Message]], Respond] = {ApiVersionsRequest: self._api_versions}
        self.peers: list[ScriptedPeer] = []

    def on(self, kind: type[Request[Message]], respond: Respond) -> None:
        """Respond so to these requests from now on."""
        self._responses[kind] = respond

    async def serve(self) -> None:
        """Respond to requests of every connection, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                transport = self.listener.accept()
                if transport is None:
                    await self.listener.wait_for_connection()
                else:
                    self.peers.append(ScriptedPeer(transport))
                    nursery.start_soon(self._serve, self.peers[-1], len(self.peers) - 1)

    async def _serve(self, peer: ScriptedPeer, number: int) -> None:
        try:
            while True:
                received = await peer.receive(*self._responses)
                if not isinstance(received.request, ApiVersionsRequest):
                    self.seen.append((number, received.request))
                kind: Any = type(received.request)
                response = self._responses[kind](received.request, received.version)
                if response is not None:
                    await peer.respond(received, response)
        except (PeerEndedError, OSError, trio.ClosedResourceError):
            peer.transport.close()

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        rows = []
        for kind in self._responses:
            low, high = self.versions.get(kind.API_KEY, (kind.MIN_VERSION, kind.MAX_VERSION))
            rows.append(ApiVersion(kind.API_KEY, low, high))
        return ApiVersionsResponse(0, rows)
