"""TLS over a socket: `TlsTransport`, and contexts that take a private key from memory."""

from __future__ import annotations

import errno
import os
import ssl
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from oncelog.broker.seams import forks
from oncelog.broker.seams.transport import WOULD_BLOCK, Buffer, SocketTransport

RECEIVE_BYTES = 64 * 1024
"""Encrypted bytes that are received by one system call. OpenSSL keeps memory for as many per connection."""
FEW_BYTES = 1024
"""After fewer bytes it is worth asking whether there are more: to try and fail costs an exception."""
SEND_BYTES = 64 * 1024
"""Bytes that are encrypted and sent together. OpenSSL keeps memory for as many per connection."""
HANDSHAKE_BYTES = 16 * 1024
END_OF_STREAM = ssl.SSLZeroReturnError()
"""The peer sends nothing more."""
PIPE_BYTES = 60 * 1024
"""Bytes of a key or a certificate chain that a pipe takes without a reader."""


FILE_BYTES_MAX = 1 << 20
"""Bytes of the largest store, key set or token file. A client may name one by the broker's configuration."""


def read_file(path: str) -> bytes:
    """Return the content of a regular file of at most `FILE_BYTES_MAX`. Raises OSError.

    Another kind, such as a FIFO, may let whoever opens it wait for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "It is no regular file", path)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"It has more than {FILE_BYTES_MAX} bytes", path)
    return content


def new_server_context() -> ssl.SSLContext:
    """Return a context for servers with OpenSSL's defaults, and without renegotiation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def new_client_context() -> ssl.SSLContext:
    """Return a context for clients with OpenSSL's defaults: servers must show a certificate for their name."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def load_certificate(context: ssl.SSLContext, key: bytes, chain: bytes) -> None:
    """Give a context its key and certificate chain (PEM). Raises OSError, ValueError.

    Python's ssl takes them from files only. They pass through pipes, so that no key reaches a disk. No fork may come
    meanwhile: the pipes would not end while the child has them, too.
    """
    ends: list[int] = []
    with forks.changing:
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
    """TLS on a connection. `handshake` comes first. See `Transport`.

    OpenSSL reads and writes memory, not the socket: on a socket it takes two system calls for each TLS record, and
    librdkafka sends a record for each message. A ``send`` that would block is tried again with the same data.
    """

    __slots__ = (
        *("_drained", "_end", "_incoming", "_outgoing", "_plain", "_read", "_taken", "_tls", "_unsent"),
        *("local", "peer"),
    )

    can_send_file = False

    def __init__(
        self, plain: SocketTransport, context: ssl.SSLContext, server_name: str | None = None
    ) -> None:
        """Take over ``plain``. ``server_name``: the host that was connected to; None: this side is the server.

        Raises ValueError for a name that cannot be a host's.
        """
        self.peer = plain.peer
        self.local = plain.local
        self._plain = plain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]  # it counts
        """Decrypt at most one record into a buffer."""
        self._drained = True
        """Whether nothing can be decrypted before more is received."""
        self._end: ssl.SSLError | None = None
        """Why nothing more can be received."""
        self._unsent = memoryview(b"")
        """Encrypted bytes that the socket has not taken yet."""
        self._taken = 0
        """How many bytes of the caller's data are in `_unsent`; `send` has not returned them yet."""

    @property
    def connection(self) -> SocketTransport:
        """See `Transport`."""
        return self._plain

    @property
    def has_received(self) -> bool:
        """See `Transport`."""
        return self._end is not None or not self._drained

    async def handshake(self) -> bytes | None:
        """Shake hands. Returns the peer's certificate (DER), None if it showed none. Raises OSError (ssl.SSLError)."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush_all()
                while (received := self._plain.receive(HANDSHAKE_BYTES)) is None:
                    await self._plain.wait_readable()
                self._feed(received)
            except ssl.SSLError:
                self._flush()  # the alert that says why
                raise
            else:
                await self._flush_all()
                self._drained = not self._incoming.pending  # a request may have come with the end
                return self._tls.getpeercert(binary_form=True)

    def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        if self._end is not None:
            return self._at_end()
        have = 0 if self._drained else self._decrypt_into(buffer)
        if not have and self._end is None:
            received = self._plain.receive(RECEIVE_BYTES)
            if received is not None:
                self._feed(received)
                have = self._decrypt_into(buffer)
        if self._outgoing.pending:  # an alert, or a response to a new key
            self._flush()
        if have:
            return have
        return WOULD_BLOCK if self._end is None else self._at_end()

    def _decrypt_into(self, buffer: memoryview) -> int:
        """Decrypt what OpenSSL has; return how many bytes. Sets `_drained`, and `_end` if the stream has ended."""
        read, incoming = self._read, self._incoming
        have, size = 0, len(buffer)
        self._drained = True
        try:
            count = have = read(size, buffer)
            while have < size:
                if not count:
                    self._end = END_OF_STREAM
                    break
                if have < FEW_BYTES and not incoming.pending:
                    break
                count = read(size, buffer[have:])
                have += count
            else:
                self._drained = not incoming.pending and not self._tls.pending()
        except ssl.SSLWantReadError:  # OpenSSL has taken all that came
            pass
        except ssl.SSLEOFError:
            self._end = END_OF_STREAM
        except ssl.SSLError as error:
            self._end = error
        return have

    def _at_end(self) -> int:
        """Return 0, or raise the error that ended the stream."""
        if self._end is not None and self._end is not END_OF_STREAM:
            raise self._end
        return 0

    def send(self, data: Buffer, *, more: bool = False) -> int:
        """See `Transport`."""
        if not data:
            return 0
        if self._unsent and not self._flush():
            return WOULD_BLOCK
        sent, self._taken = self._taken, 0
        size = len(data)
        with memoryview(data) as view:
            while sent < size:
                piece = self._tls.write(view[sent : sent + SEND_BYTES])
                if not self._flush():
                    self._taken = piece
                    return sent or WOULD_BLOCK
                sent += piece
        return sent

    def send_file(self, fileno: int, position: int, size: int) -> int:
        """Files cannot be sent by the kernel here."""
        raise NotImplementedError

    def wait_readable(self) -> Awaitable[None]:
        """See `Transport`."""
        if self.has_received:
            return trio.lowlevel.checkpoint()
        return self._plain.wait_readable()

    def wait_writable(self) -> Awaitable[None]:
        """See `Transport`."""
        return self._plain.wait_writable()

    def close(self) -> None:
        """Say goodbye (close_notify) if that needs no waiting, and close."""
        with suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            finally:
                self._flush()
        self._plain.close()

    def _feed(self, received: bytes) -> None:
        """Give OpenSSL what came from the socket; nothing: the peer has closed."""
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _flush(self) -> bool:
        """Send what OpenSSL has encrypted, as far as the socket takes it. Returns whether it took all."""
        while self._unsent or self._outgoing.pending:
            unsent = self._unsent or memoryview(self._outgoing.read())
            sent = self._plain.send(unsent)
            self._unsent = unsent if sent == WOULD_BLOCK else unsent[sent:]
            if sent == WOULD_BLOCK:
                return False
        return True

    async def _flush_all(self) -> None:
        while not self._flush():
            await self._plain.wait_writable()
