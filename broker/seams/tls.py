"""TLS over a socket: `TlsTransport`, and contexts that take a private key from memory."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from oncelog.broker.seams.transport import WOULD_BLOCK, Buffer, SocketTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable

PIPE_BYTES = 60 * 1024
"""Bytes of a key or a certificate chain that a pipe takes without a reader."""


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def new_server_context() -> ssl.SSLContext:
    """Return a context for servers with OpenSSL's defaults, and without renegotiation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_certificate(context: ssl.SSLContext, key: bytes, chain: bytes) -> None:
    """Give a context its key and certificate chain (PEM). Raises OSError, ValueError.

    Python's ssl takes them from files only. They pass through pipes, so that no key reaches a disk.
    """
    ends: list[int] = []
    try:
        for content in (chain, key):
            if len(content) > PIPE_BYTES:
                raise ValueError(f"it has more than {PIPE_BYTES} bytes")
            reading, writing = os.pipe()
            ends.append(reading)
            with open(writing, "wb") as pipe:
                pipe.write(content)
        context.load_cert_chain(f"/dev/fd/{ends[0]}", f"/dev/fd/{ends[1]}")
    finally:
        for end in ends:
            os.close(end)


class TlsTransport:
    """TLS on a connection that was accepted. `handshake` comes first. See `Transport`.

    One call may get several TLS records. What OpenSSL has decrypted and nobody has taken yet counts as readable.
    """

    __slots__ = ("_failure", "_sock", "local", "peer")

    can_send_file = False

    def __init__(self, plain: SocketTransport, context: ssl.SSLContext) -> None:
        """Take over ``plain``. Raises OSError if the peer has gone."""
        self.peer = plain.peer
        self.local = plain.local
        self._sock = context.wrap_socket(
            plain.detach(), server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        self._failure: OSError | None = None
        """Why nothing more can be received: raised once what came before it was taken."""

    async def handshake(self) -> bytes | None:
        """Shake hands. Returns the peer's certificate (DER), None if it showed none. Raises OSError (ssl.SSLError)."""
        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(self._sock)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(self._sock)
            else:
                return self._sock.getpeercert(binary_form=True)

    def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        if self._failure is not None:
            raise self._failure
        have, size = 0, len(buffer)
        while have < size:
            try:
                count = self._sock.recv_into(buffer[have:] if have else buffer)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return have or WOULD_BLOCK
            except ssl.SSLEOFError:
                return have
            except OSError as error:
                if not have:
                    raise
                self._failure = error
                return have
            if count == 0:
                return have
            have += count
        return have

    def send(self, data: Buffer, *, more: bool = False) -> int:
        """See `Transport`."""
        if not data:
            return 0
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK

    def send_file(self, fileno: int, position: int, size: int) -> int:
        """Files cannot be sent by the kernel here."""
        raise NotImplementedError

    def wait_readable(self) -> Awaitable[None]:
        """See `Transport`."""
        if self._failure is not None or (self._sock.fileno() != -1 and self._sock.pending()):
            return trio.lowlevel.checkpoint()
        return trio.lowlevel.wait_readable(self._sock)

    def wait_writable(self) -> Awaitable[None]:
        """See `Transport`."""
        return trio.lowlevel.wait_writable(self._sock)

    def close(self) -> None:
        """Say goodbye (close_notify) if that needs no waiting, and close."""
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            with suppress(OSError, ValueError):
                self._sock.unwrap()
            self._sock.close()
