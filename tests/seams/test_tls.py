"""`TlsTransport` over real sockets, against Python's own TLS client."""

import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from oncelog.broker.seams.tls import SEND_BYTES, TlsTransport, load_certificate, new_server_context
from oncelog.broker.seams.transport import WOULD_BLOCK, SocketListener, SocketTransport
from tests.security.certificates import Authority

TIMEOUT_S = 60
AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
FORGED_RECORD = bytes.fromhex("17 0303 0040") + bytes(64)
"""Application data that no key has encrypted."""


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    made = new_server_context()
    load_certificate(made, SERVER.key, SERVER.chain)
    return made


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


def test_what_came_before_a_bad_record_is_given_first() -> None:
    context = new_server_context()
    load_certificate(context, SERVER.key, SERVER.chain)

    async def main() -> None:
        listener = SocketListener.bind("127.0.0.1", 0, 1)
        theirs = socket.create_connection(listener.address)
        await listener.wait_for_connection()
        plain = listener.accept()
        listener.close()
        assert plain is not None
        transport, client = TlsTransport(plain, context), TlsClient(theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.handshake)
            await trio.to_thread.run_sync(client.handshake)
        theirs.sendall(client.encrypted(b"first") + client.encrypted(b"second") + FORGED_RECORD)
        buffer = memoryview(bytearray(100))
        await transport.wait_readable()
        count = transport.receive_into(buffer)
        assert bytes(buffer[:count]) == b"firstsecond"
        with trio.fail_after(5):
            await transport.wait_readable()  # nothing more comes, and yet there is something to tell
        with pytest.raises(ssl.SSLError):
            transport.receive_into(buffer)
        transport.close()
        theirs.close()

    trio.run(main)


class TlsClient:
    """The other side, which decides what it sends together."""

    def __init__(self, sock: socket.socket) -> None:
        context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._sock.sendall(self._out.read())
                self._in.write(self._sock.recv(65536))
            else:
                self._sock.sendall(self._out.read())
                return

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()
