"""`TlsTransport` over real sockets, against Python's own TLS client."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
import trio

from oncelog.broker.seams.tls import SEND_BYTES, TlsTransport
from oncelog.broker.seams.transport import WOULD_BLOCK, Buffer, SocketListener, SocketTransport
from tests.common.certificates import Authority

TIMEOUT_S = 60
AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
LITTLE_BYTES = 30_000
FORGED_RECORD = bytes.fromhex("17 0303 0040") + bytes(64)
"""Application data that no key has encrypted."""


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    return SERVER.server_context()


def shake_hands(sock: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(sock)


@contextmanager
def sockets(client: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """Run ``client`` on one end of a connection, in a thread; yield the other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), TIMEOUT_S)
        theirs, _ = listener.accept()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with ours:
                client(ours)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield theirs
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert failures == []


async def receive(transport: TlsTransport, size: int) -> bytes:
    """Return the bytes of one call, which has room for ``size``."""
    buffer = memoryview(bytearray(size))
    while (count := transport.receive_into(buffer)) == WOULD_BLOCK:
        await transport.wait_readable()
    return bytes(buffer[:count])


async def receive_all(transport: TlsTransport, size: int) -> bytes:
    received = bytearray()
    while chunk := await receive(transport, size):
        received += chunk
    return bytes(received)


async def send_all(transport: TlsTransport, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = transport.send(view)
        if sent == WOULD_BLOCK:
            await transport.wait_writable()
        else:
            view = view[sent:]


@pytest.mark.parametrize("room", [1000, 256 * 1024], ids=["small buffer", "large buffer"])
def test_all_bytes_come_and_go(room: int, context: ssl.SSLContext) -> None:
    rng = random.Random(1)
    pieces = [rng.randbytes(rng.choice([1, 27, 1017, 16_384, 16_385, 300_000])) for _ in range(60)]
    back = rng.randbytes(20 * SEND_BYTES + 1)

    def client(sock: socket.socket) -> None:
        with shake_hands(sock) as tls:
            for piece in pieces:
                tls.sendall(piece)
            received = bytearray()
            while len(received) < len(back):
                received += tls.recv(100_000)
            assert received == back
            tls.unwrap()

    async def serve(sock: socket.socket) -> None:
        transport = TlsTransport(SocketTransport(sock, "client:1"), context)
        await transport.handshake()
        received = bytearray()
        while len(received) < sum(map(len, pieces)):
            received += await receive(transport, room)
        assert received == b"".join(pieces)
        await send_all(transport, back)
        assert await receive(transport, room) == b""
        assert await receive(transport, room) == b"", "the end of the stream is no end any more"
        transport.close()

    with sockets(client) as sock:
        trio.run(serve, sock)


def test_a_peer_that_goes_without_a_word_is_the_end(context: ssl.SSLContext) -> None:
    def client(sock: socket.socket) -> None:
        tls = shake_hands(sock)
        tls.sendall(b"last words")
        tls.recv(1)
        tls.close()

    async def serve(sock: socket.socket) -> None:
        transport = TlsTransport(SocketTransport(sock, "client:1"), context)
        await transport.handshake()
        await send_all(transport, b"!")
        assert await receive_all(transport, 1000) == b"last words"
        transport.close()

    with sockets(client) as sock:
        trio.run(serve, sock)


def test_the_alert_reaches_a_client_that_is_refused(context: ssl.SSLContext) -> None:
    def client(sock: socket.socket) -> None:
        mine = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        mine.check_hostname = False
        mine.verify_mode = ssl.CERT_NONE
        mine.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            mine.wrap_socket(sock)

    async def serve(sock: socket.socket) -> None:
        transport = TlsTransport(SocketTransport(sock, "client:1"), context)
        with pytest.raises(ssl.SSLError):
            await transport.handshake()
        transport.close()

    newest = context.minimum_version
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with sockets(client) as sock:
            trio.run(serve, sock)
    finally:
        context.minimum_version = newest


class CountingTransport(SocketTransport):
    """Counts what is sent and asked for. While it is ``slow``, it takes little, and every other time nothing."""

    __slots__ = ("receives", "sizes", "slow")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, "client:1")
        self.sizes: list[int] = []
        """Of the bytes of each call of `send`."""
        self.receives = 0
        self.slow = False

    def receive(self, size: int) -> bytes | None:
        self.receives += 1
        return super().receive(size)

    def send(self, data: Buffer, *, more: bool = False) -> int:
        self.sizes.append(len(data))
        if not self.slow:
            return super().send(data, more=more)
        return super().send(data[:LITTLE_BYTES]) if len(self.sizes) % 2 else WOULD_BLOCK


@asynccontextmanager
async def connected(early: bytes = b"") -> AsyncIterator[tuple[TlsTransport, TlsClient, CountingTransport]]:
    """A connection after its handshake; the client sends ``early`` together with the handshake's last message."""
    context = SERVER.server_context()
    listener = SocketListener.bind("127.0.0.1", 0, 1)
    with socket.create_connection(listener.address, TIMEOUT_S) as theirs:
        await listener.wait_for_connection()
        accepted = listener.accept()
        listener.close()
        assert accepted is not None
        plain = CountingTransport(accepted.detach())
        transport, client = TlsTransport(plain, context), TlsClient(theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.handshake)
            await trio.to_thread.run_sync(client.handshake, early)
        yield transport, client, plain
        transport.close()


def test_what_came_before_a_bad_record_is_given_first() -> None:
    async def main() -> None:
        async with connected() as (transport, client, _):
            client.sock.sendall(client.encrypted(b"first") + client.encrypted(b"second") + FORGED_RECORD)
            buffer = memoryview(bytearray(100))
            await transport.wait_readable()
            count = transport.receive_into(buffer)
            assert bytes(buffer[:count]) == b"firstsecond"
            with trio.fail_after(TIMEOUT_S):
                await transport.wait_readable()  # nothing more comes, and yet there is something to tell
            with pytest.raises(ssl.SSLError):
                transport.receive_into(buffer)

    trio.run(main)


def test_a_request_that_came_with_the_end_of_the_handshake_is_not_waited_for() -> None:
    async def main() -> None:
        async with connected(b"early") as (transport, _, _):
            with trio.fail_after(TIMEOUT_S):
                assert await receive(transport, 100) == b"early"

    trio.run(main)


@pytest.mark.parametrize("seed", range(3))
def test_tls_records_cut_anywhere_give_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 9, 1000, 1023, 1024, 5000, 16_384]) for _ in range(80)]
    pieces = [rng.randbytes(size) for size in sizes]

    async def main() -> None:
        async with connected() as (transport, client, _):
            sent = b"".join(map(client.encrypted, pieces))
            received = bytearray()
            while sent:
                cut = rng.choice([1, 5, 30, 1045, 20_000, 70_000])
                client.sock.sendall(sent[:cut])
                sent = sent[cut:]
                buffer = memoryview(bytearray(rng.choice([1, 9, 1000, 16_384, 200_000])))
                while (count := transport.receive_into(buffer)) != WOULD_BLOCK:
                    received += buffer[:count]
            with trio.fail_after(TIMEOUT_S):
                while len(received) < sum(sizes):
                    received += await receive(transport, 1000)
            assert received == b"".join(pieces)

    trio.run(main)


def test_small_requests_that_came_together_take_one_call() -> None:
    async def main() -> None:
        async with connected() as (transport, client, plain):
            client.sock.sendall(b"".join(client.encrypted(b"request") for _ in range(3)))
            await transport.wait_readable()
            receives = plain.receives
            assert await receive(transport, 1000) == 3 * b"request"
            assert plain.receives == receives + 1

    trio.run(main)


def test_nothing_after_the_goodbye_is_read() -> None:
    async def main() -> None:
        async with connected() as (transport, client, _):
            client.sock.sendall(client.encrypted(b"last words") + client.goodbye() + FORGED_RECORD)
            await transport.wait_readable()
            assert await receive_all(transport, 1000) == b"last words"

    trio.run(main)


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
def test_much_data_is_encrypted_in_pieces(slow: bool) -> None:
    data = random.Random(1).randbytes(10 * SEND_BYTES + 1)

    async def main() -> None:
        async with connected() as (transport, client, plain):
            plain.sizes.clear()
            plain.slow = slow
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_all, transport, data)
                assert await trio.to_thread.run_sync(client.receive, len(data)) == data
            assert max(plain.sizes) < SEND_BYTES + 1024, "OpenSSL keeps memory for as many"

    trio.run(main)


class TlsClient:
    """The other side, which decides what it sends together."""

    def __init__(self, sock: socket.socket) -> None:
        context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
        self.sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def handshake(self, early: bytes = b"") -> None:
        """Shake hands, and send ``early`` together with the last message."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.sock.sendall(self._out.read())
                self._in.write(self.sock.recv(65536))
            else:
                self.sock.sendall(self._out.read() + (self.encrypted(early) if early else b""))
                return

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()

    def goodbye(self) -> bytes:
        """Return the message that nothing more comes."""
        with suppress(ssl.SSLWantReadError):  # the other side's
            self._tls.unwrap()
        return self._out.read()

    def receive(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        received = bytearray()
        while len(received) < size:
            try:
                received += self._tls.read(size - len(received))
            except ssl.SSLWantReadError:
                self._in.write(self.sock.recv(65536))
        return bytes(received)
