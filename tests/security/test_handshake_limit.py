"""A TLS handshake that does not end is cut off after its limit. Over real sockets, in time that only the test moves."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import pytest
import trio
import trio.testing

from oncelog.broker.seams.transport import SocketListener, SocketTransport
from oncelog.broker.security.failed_authentication import FailedAuthentication
from oncelog.broker.security.listener import HANDSHAKE_SECONDS
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from tests.common.certificates import Authority, client_hello
from tests.harness.sim_broker import SimBroker

AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
CONFIG = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": SERVER.key.decode(),
    "ssl.keystore.certificate.chain": SERVER.chain.decode(),
}
Tell = Callable[[str, int], None]
"""Takes a peer, and how many bytes were received; 0 when it was accepted."""


class TellingTransport(SocketTransport):
    """Tells what it receives."""

    __slots__ = ("_tell",)

    def __init__(self, sock: socket.socket, peer: str, tell: Tell) -> None:
        super().__init__(sock, peer)
        self._tell = tell

    def receive(self, size: int) -> bytes | None:
        received = super().receive(size)
        if received:
            self._tell(self.peer, len(received))
        return received


class TellingListener(SocketListener):
    """Tells whom it has accepted, and what its connections receive."""

    tell: Tell

    def accept(self) -> SocketTransport | None:
        accepted = super().accept()
        if accepted is None:
            return None
        self.tell(accepted.peer, 0)
        return TellingTransport(accepted.detach(), accepted.peer, self.tell)


class TlsBroker:
    """A simulated broker with TLS, on a real socket. The time of the run is a `MockClock`."""

    def __init__(self) -> None:
        self._listener = TellingListener.bind("127.0.0.1", 0, 10)
        assert isinstance(self._listener, TellingListener)
        self._listener.tell = self._tell
        self.broker = SimBroker(config=CONFIG, protocol="SSL", sockets=self._listener)
        self._received: dict[str, int] = {}
        """How many bytes, by peer."""
        self._changed = trio.Event()

    def _tell(self, peer: str, size: int) -> None:
        self._received[peer] = self._received.get(peer, 0) + size
        self._changed.set()
        self._changed = trio.Event()

    async def connect(self) -> trio.SocketStream:
        """Return a connection that the broker has accepted."""
        stream = await trio.open_tcp_stream(*self._listener.address)
        await self.wait_received(stream, 0)
        return stream

    async def wait_received(self, stream: trio.SocketStream, size: int) -> None:
        """Wait until the broker has received so many bytes of a connection, and waits for more."""
        while self._received.get(_name(stream), -1) < size:
            await self._changed.wait()
        await trio.testing.wait_all_tasks_blocked()

    def has(self, stream: trio.SocketStream) -> bool:
        """Whether the broker has this connection open."""
        return _name(stream) in {one.transport.peer for one in self.broker.server_connections()}


def _name(stream: trio.SocketStream) -> str:
    host, port = stream.socket.getsockname()
    return f"{host}:{port}"


async def is_served(secured: trio.SSLStream[trio.SocketStream]) -> bool:
    request = encode_request(ApiVersionsRequest("test", "1"), 3, 7, "test")
    await secured.send_all(request)
    return await secured.receive_some() != b""


@pytest.mark.parametrize("says", ["nothing", "a byte a second", "all of its first message"])
def test_a_handshake_that_does_not_end_is_cut_off(says: str) -> None:
    clock = trio.testing.MockClock()

    async def pass_time(seconds: float) -> None:
        clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()

    async def main() -> None:
        broker = TlsBroker()
        failed: list[object] = []
        async with broker.broker as sim:
            sim.node.host.login_observers.append(lambda _, what: failed.append(what))
            hello = client_hello()
            async with await broker.connect() as stuck:
                if says == "all of its first message":
                    await stuck.send_all(hello)
                    await broker.wait_received(stuck, len(hello))
                for second in range(1, HANDSHAKE_SECONDS):
                    await pass_time(1)
                    if says == "a byte a second":
                        await stuck.send_all(hello[second - 1 : second])
                        await broker.wait_received(stuck, second)
                context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
                async with trio.SSLStream(
                    await broker.connect(), context, server_hostname="localhost"
                ) as other:
                    assert await is_served(other), "a handshake keeps another one waiting"
                    await pass_time(0.9)
                    assert broker.has(stuck)
                    await pass_time(0.2)
                    assert not broker.has(stuck)
                    while await stuck.receive_some():
                        pass
                    await pass_time(2 * HANDSHAKE_SECONDS)
                    assert await is_served(other), "the limit is not only the handshake's"
        assert failed == [FailedAuthentication("TLS", f"no TLS handshake in {HANDSHAKE_SECONDS} s")]

    trio.run(main, clock=clock)
