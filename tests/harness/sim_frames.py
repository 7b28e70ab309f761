"""Frames over a simulated transport, for both ends of a connection."""

from __future__ import annotations

from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.framing import FrameReader
from tests.harness.sim_network import MemoryTransport


async def send_all(transport: MemoryTransport, data: bytes) -> None:
    """Send ``data``, waiting while the other end does not read."""
    view = memoryview(data)
    while view:
        sent = transport.send(view)
        if sent == WOULD_BLOCK:
            await transport.wait_writable()
        else:
            view = view[sent:]


async def receive_frame(transport: MemoryTransport, frames: FrameReader) -> bytes | None:
    """Return the payload of the next frame, None at the end of the stream."""
    buffer = memoryview(bytearray(64 * 1024))
    while (payload := frames.next_frame()) is None:
        count = transport.receive_into(buffer)
        if count == WOULD_BLOCK:
            await transport.wait_readable()
        elif count == 0:
            return None
        else:
            frames.feed(buffer[:count])
    return payload
