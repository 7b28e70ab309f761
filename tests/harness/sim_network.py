"""A `Transport` over memory, and a listener that tests connect to: the network of a simulated broker."""

from __future__ import annotations

import trio

from oncelog.broker.seams.transport import WOULD_BLOCK, Buffer

PIPE_BYTES_MAX = 256 * 1024
"""How much one direction holds before its sender would block."""


class _Pipe:
    """One direction: bytes in order, a bound, and an end."""

    def __init__(self, bytes_max: int) -> None:
        self.data = bytearray()
        self.bytes_max = bytes_max
        self.ended = False
        self.broken = False
        self._changed = trio.Event()

    def change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class MemoryTransport:
    """One end of a connection between two tasks."""

    can_send_file = False
    connection = None
    has_received = False

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, peer: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False
        self.peer = peer
        self.local = ("simulated", 9092)

    def receive_into(self, buffer: memoryview) -> int:
        self._check(self._incoming)
        data = self._incoming.data
        if not data:
            return 0 if self._incoming.ended else WOULD_BLOCK
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        del data[:count]
        self._incoming.change()
        return count

    def send(self, data: Buffer, *, more: bool = False) -> int:
        self._check(self._outgoing)
        if self._outgoing.ended:
            raise BrokenPipeError("the peer does not read any more")
        room = self._outgoing.bytes_max - len(self._outgoing.data)
        if room <= 0:
            return WOULD_BLOCK
        count = min(room, len(data))
        self._outgoing.data += memoryview(data)[:count]
        self._outgoing.change()
        return count

    def send_file(self, fileno: int, position: int, size: int) -> int:
        raise AssertionError("simulated files have no descriptor")

    async def wait_readable(self) -> None:
        self._check(self._incoming)
        while not (self._incoming.data or self._incoming.ended):
            await self._incoming.wait()
            self._check(self._incoming)
        await trio.lowlevel.checkpoint()

    async def wait_writable(self) -> None:
        self._check(self._outgoing)
        while len(self._outgoing.data) >= self._outgoing.bytes_max and not self._outgoing.ended:
            await self._outgoing.wait()
            self._check(self._outgoing)
        await trio.lowlevel.checkpoint()

    def pending(self) -> int:
        """Bytes that the other side has sent and this side has not read."""
        return len(self._incoming.data)

    def end_sending(self) -> None:
        """Half-close: the other side reads to the end and may still send."""
        self._outgoing.ended = True
        self._outgoing.change()

    def break_off(self) -> None:
        """The connection is lost: both sides get ConnectionResetError."""
        for pipe in (self._incoming, self._outgoing):
            pipe.broken = True
            pipe.change()

    def close(self) -> None:
        self._closed = True
        for pipe in (self._incoming, self._outgoing):
            pipe.ended = True
            pipe.change()

    def _check(self, pipe: _Pipe) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if pipe.broken:
            raise ConnectionResetError("the simulated connection was lost")


def memory_pair(
    client: str = "client:1", server: str = "simulated:9092", pipe_bytes_max: int = PIPE_BYTES_MAX
) -> tuple[MemoryTransport, MemoryTransport]:
    """A connection: the client's end and the server's, named ``client`` and ``server``."""
    there, back = _Pipe(pipe_bytes_max), _Pipe(pipe_bytes_max)
    return MemoryTransport(back, there, server), MemoryTransport(there, back, client)


class MemoryListener:
    """A listener whose connections come from `connect`."""

    def __init__(
        self, pipe_bytes_max: int = PIPE_BYTES_MAX, address: tuple[str, int] = ("simulated", 9092)
    ) -> None:
        self.address = address
        self._pipe_bytes_max = pipe_bytes_max
        self._waiting: list[MemoryTransport] = []
        self._arrived = trio.Event()
        self._count = 0
        self._closed = False

    def connect(self, from_host: str = "client") -> MemoryTransport:
        """The client's end of a new connection; ConnectionRefusedError if the listener is closed."""
        if self._closed:
            raise ConnectionRefusedError
        self._count += 1
        host, port = self.address
        ours, theirs = memory_pair(f"{from_host}:{self._count}", f"{host}:{port}", self._pipe_bytes_max)
        self._waiting.append(theirs)
        self._arrived.set()
        return ours

    def accept(self) -> MemoryTransport | None:
        return self._waiting.pop(0) if self._waiting else None

    async def wait_for_connection(self) -> None:
        await self._arrived.wait()
        self._arrived = trio.Event()

    def close(self) -> None:
        self._closed = True
        for transport in self._waiting:
            transport.close()


class MemoryNetwork:
    """Listeners by host and port; `connect` is a `Connect` of the transport seam."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self.connected: list[tuple[str, int]] = []
        """Where connections were opened, in order; refused ones are here too."""

    def add(self, listener: MemoryListener) -> None:
        self._listeners[listener.address] = listener

    def listen(self, host: str, port: int) -> MemoryListener:
        listener = MemoryListener(address=(host, port))
        self.add(listener)
        return listener

    async def connect(self, host: str, port: int) -> MemoryTransport:
        await trio.lowlevel.checkpoint()
        self.connected.append((host, port))
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        return listener.connect()
