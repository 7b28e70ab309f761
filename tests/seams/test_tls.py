"""`TlsTransport`: what it gives to its reader where several TLS records come at once."""

from __future__ import annotations

import socket
import ssl

import pytest
import trio

from oncelog.broker.seams.tls import TlsTransport, load_certificate, new_server_context
from oncelog.broker.seams.transport import SocketListener
from tests.security.certificates import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
FORGED_RECORD = bytes.fromhex("17 0303 0040") + bytes(64)
"""Application data that no key has encrypted."""


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
