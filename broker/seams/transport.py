"""`Transport`: the bytes of one connection. Only this file touches sockets.

Each call on one of Trio's streams costs a scheduler round trip. Here a call returns at once, and only if it
would block the caller awaits `wait_readable` or `wait_writable`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import trio

from oncelog.broker.seams import forks
from oncelog.broker.seams.platforms import HERE
from oncelog.wire.primitives import Buffer as Buffer

WOULD_BLOCK = -1
"""A call that would block returns this instead. (A receive returns 0 when the peer has closed.)"""


_MORE = HERE.send_more_flag


class Transport(Protocol):
    """A connected byte stream. Calls raise OSError when the connection is broken."""

    peer: str
    """The other side as ``host:port``, for logs and for connection limits."""

    local: tuple[str, int]
    """This side's host and port."""

    can_send_file: bool
    """Whether `send_file` works; if not, a file's bytes are read and sent."""

    @property
    def connection(self) -> SocketTransport | None:
        """The TCP connection below; None in memory."""

    @property
    def has_received(self) -> bool:
        """Whether a receive gets something though `connection` is not readable."""

    def receive_into(self, buffer: memoryview) -> int:
        """Returns how many bytes were put into ``buffer``, 0 at the end of the stream, or WOULD_BLOCK."""

    def send(self, data: Buffer, *, more: bool = False) -> int:
        """Returns how many bytes of ``data`` were taken, or WOULD_BLOCK. ``more``: another send follows at
        once."""

    def send_file(self, fileno: int, position: int, size: int) -> int:
        """Returns how many bytes of the file were sent from ``position`` (0: the file ends before that), or
        WOULD_BLOCK."""

    def wait_readable(self) -> Awaitable[None]:
        """Wait until a receive may get something. Raises trio.ClosedResourceError if it is closed meanwhile."""

    def wait_writable(self) -> Awaitable[None]:
        """Wait until a send may take something. Raises trio.ClosedResourceError if it is closed meanwhile."""

    def close(self) -> None:
        """Close; waiting tasks get trio.ClosedResourceError. May be called again."""


Connect = Callable[[str, int], Awaitable[Transport]]
"""Opens a connection to a host and a port. Raises OSError if nobody accepts it."""


class SocketTransport:
    """A TCP connection."""

    __slots__ = ("_fileno", "_sock", "local", "on_close", "peer")

    can_send_file = True
    has_received = False

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # macOS refuses where the peer has gone already; reading will tell
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._fileno = sock.fileno()
        self.peer = peer
        name = sock.getsockname()
        self.local: tuple[str, int] = (name[0], name[1])
        self.on_close: Callable[[], None] | None = None
        """Called before it closes: somebody waits for it elsewhere than in Trio."""

    @property
    def connection(self) -> SocketTransport:
        """See `Transport`."""
        return self

    def receive_into(self, buffer: memoryview) -> int:
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return WOULD_BLOCK

    def receive(self, size: int) -> bytes | None:
        """Return at most ``size`` bytes, none at the end of the stream, or None if that would block."""
        try:
            return self._sock.recv(size)
        except BlockingIOError:
            return None

    def send(self, data: Buffer, *, more: bool = False) -> int:
        try:
            return self._sock.send(data, _MORE if more else 0)
        except BlockingIOError:
            return WOULD_BLOCK

    def send_file(self, fileno: int, position: int, size: int) -> int:
        try:
            return os.sendfile(self._fileno, fileno, position, size)
        except BlockingIOError:
            return WOULD_BLOCK

    # These are no coroutines: with thousands of connections, each coroutine is more memory to touch at every
    # wake-up.

    def wait_readable(self) -> Awaitable[None]:
        return trio.lowlevel.wait_readable(self._sock)

    def wait_writable(self) -> Awaitable[None]:
        return trio.lowlevel.wait_writable(self._sock)

    def close(self) -> None:
        if self._sock.fileno() != -1:
            if self.on_close is not None:
                self.on_close()
            trio.lowlevel.notify_closing(self._sock)
            forks.close_socket(self._sock)

    def fileno(self) -> int:
        """The socket's descriptor; -1 once it is closed."""
        return self._sock.fileno()

    def detach(self) -> socket.socket:
        """Give the socket away; this transport is of no use any more."""
        return self._sock


def _new_socket(family: int, kind: int, proto: int) -> socket.socket:
    """A socket that children made by fork close. Raises OSError."""
    with forks.changing:
        sock = socket.socket(family, kind, proto)
        forks.note_socket(sock)
    return sock


MAPPED_IPV4 = "::ffff:"
"""How a socket of both families shows an IPv4 address. Rights and quotas are for the address itself."""
EVERY_IPV4_ADDRESS = "0.0.0.0"
"""The name of a listener without a host: clients of both families can connect to it."""
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def _bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that is bound to an address of the host: as Java chooses, its first of IPv4, else of IPv6; without a
    host to every address of both. Raises OSError.
    """
    if not host and socket.has_ipv6:
        try:
            return _socket_at(socket.AF_INET6, ("::", port))
        except OSError as error:
            if error.errno not in NO_IPV6:
                raise
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = min(found, key=lambda row: row[0] != socket.AF_INET)
    return _socket_at(family, address)


def _socket_at(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    """A TCP socket that is bound to this address. Raises OSError."""
    sock = _new_socket(family, socket.SOCK_STREAM, 0)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        forks.close_socket(sock)
        raise
    return sock


class SocketListener:
    """A listening TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        name = sock.getsockname()
        self.address: tuple[str, int] = (name[0], name[1])

    @classmethod
    def bind(cls, host: str, port: int, backlog: int) -> SocketListener:
        """Listen on ``host:port`` (port 0: a free one). ``backlog``: connections that may wait to be accepted.
        Raises OSError if the address cannot be bound."""
        sock = _bound_socket(host, port)
        try:
            sock.listen(backlog)
            sock.setblocking(False)
        except OSError:
            forks.close_socket(sock)
            raise
        listener = cls(sock)
        if not host:
            listener.address = EVERY_IPV4_ADDRESS, listener.address[1]
        return listener

    def accept(self) -> SocketTransport | None:
        """The next waiting connection, or None. Raises OSError (for one, EMFILE: no descriptors left)."""
        while True:
            try:
                with forks.changing:
                    sock, address = self._sock.accept()
                    forks.note_socket(sock)
            except (BlockingIOError, ConnectionAbortedError):
                return None
            try:
                return SocketTransport(sock, f"{address[0].removeprefix(MAPPED_IPV4)}:{address[1]}")
            except OSError:
                forks.close_socket(
                    sock
                )  # the peer has gone already, and macOS says nothing about its socket any more

    async def wait_for_connection(self) -> None:
        await trio.lowlevel.wait_readable(self._sock)

    def set_unread_limit(self, seconds: float) -> None:
        """Break accepted connections whose peer has not taken what was sent for so long; only on Linux."""
        if HERE.user_timeout_option is not None:
            self._sock.setsockopt(socket.IPPROTO_TCP, HERE.user_timeout_option, round(seconds * 1000))

    def detach(self) -> int:
        """Give the socket away, as a file descriptor: this object is closed then."""
        return self._sock.detach()

    def set_buffers(self, send_bytes: int, receive_bytes: int) -> None:
        """Socket buffer sizes that accepted connections inherit, in bytes; -1 leaves the system's own choice."""
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size != -1:
                self._sock.setsockopt(socket.SOL_SOCKET, option, size)

    def close(self) -> None:
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            forks.close_socket(self._sock)


class PortReservation:
    """A port that stays ours while nobody listens on it: ``port``, a free one for 0.

    It is bound and does not listen. On Linux a listener may be bound beside it, and the system gives its port to nobody
    who asks for a free one. Elsewhere the port is only chosen, not kept. Raises OSError if it cannot be bound.
    """

    def __init__(self, host: str, port: int) -> None:
        self._sock = _bound_socket(host, port)
        self.port: int = self._sock.getsockname()[1]
        if not HERE.keeps_bound_ports:
            self.close()

    def close(self) -> None:
        """Give the port back."""
        forks.close_socket(self._sock)


async def connect(host: str, port: int) -> SocketTransport:
    """A TCP connection to the first of the host's addresses that accepts one. Raises OSError, the last address's."""
    refused: OSError | None = None
    for family, kind, proto, _, found in await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address: tuple[Any, ...] = found
        sock = _new_socket(family, kind, proto)
        try:
            sock.setblocking(False)
            error = sock.connect_ex(address)
            if error == errno.EINPROGRESS:
                await trio.lowlevel.wait_writable(sock)
                error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            return SocketTransport(sock, f"{address[0]}:{address[1]}")
        except OSError as why:
            refused = why
            forks.close_socket(sock)
        except BaseException:  # cancelled
            forks.close_socket(sock)
            raise
    assert refused is not None, "getaddrinfo gives an address or raises"
    raise refused


__all__ = [
    "WOULD_BLOCK",
    "Buffer",
    "Connect",
    "PortReservation",
    "SocketListener",
    "SocketTransport",
    "Transport",
    "connect",
]
