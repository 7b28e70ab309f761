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
from oncelog.broker.seams.transport import WOULD_BLOCK, SocketTransport
from tests.security.certificates import Authority

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    identity = Authority().identity("server")
    made = new_server_context()
    load_certificate(made, identity.key, identity.chain)
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


def test_what_came_before_a_damaged_record_is_received_first(context: ssl.SSLContext) -> None:
    may_end = threading.Event()

    def client(sock: socket.socket) -> None:
        with shake_hands(sock) as tls:
            tls.sendall(b"whole")
            socket.socket.sendall(tls, bytes.fromhex("1703030020") + bytes(32))  # a record nobody has encrypted
            assert may_end.wait(TIMEOUT_S)

    async def serve(sock: socket.socket) -> None:
        transport = TlsTransport(SocketTransport(sock, "client:1"), context)
        await transport.handshake()
        received = b""
        with pytest.raises(ssl.SSLError):
            while True:
                received += await receive(transport, 1000)
        assert received == b"whole"
        with pytest.raises(ssl.SSLError):
            await receive(transport, 1000)
        may_end.set()
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
