"""`BaseConnection`: what every connection to a client has, whoever handles its requests: the transport, who is at its
other end, its log-in, what closes it, and how it ends. `oncelog.broker.net.connection` has the broker's loop of
requests, the proxy has its own.

All times here are real time, since they are about the peer: the client at the other end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.net.unexpected_bytes import unexpected_bytes
from oncelog.broker.net.writer import ResponseWriter
from oncelog.broker.requests.authorization import ANONYMOUS
from oncelog.broker.requests.request import AuthenticationFailed, CloseConnection, ConnectionLost
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.errors import DecodeError
from oncelog.wire.header import FIXED_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.net.server import BoundListener, Server
    from oncelog.broker.requests.request import Pending
    from oncelog.broker.seams.transport import Transport

UNKNOWN_SOFTWARE = "unknown"
"""The name and version of a client's software that it has not said (Kafka: ``ClientInformation``)."""

_SIZE = struct.Struct(">i")
_size_at = _SIZE.unpack_from

log = get_logger(__name__)


class BaseConnection:
    """The state of one connection; `serve` runs until either side closes."""

    __slots__ = (
        "__weakref__",
        "_is_waiting",
        "_principal",
        "_security",
        "_server",
        "authentication_handler",
        "client_id",
        "close_reason",
        "frame_bytes_max",
        "heard_at",
        "is_cut_off",
        "is_token_authenticated",
        "knows_versions",
        "listener_name",
        "must_log_in_since",
        "muted_until",
        "needs_no_authentication",
        "node_id",
        "on_close",
        "software",
        "transport",
        "writer",
    )

    def __init__(self, server: Server[Any], transport: Transport, listener: BoundListener) -> None:
        self.transport = transport
        self.listener_name = listener.name
        self.node_id = listener.node_id
        """See `BoundListener`."""
        self.client_id: str | None = None
        """The client id of its latest decoded request."""
        self.software = (UNKNOWN_SOFTWARE, UNKNOWN_SOFTWARE)
        """Name and version of the client's software, as far as it has said them."""
        self._principal = ANONYMOUS
        self.writer = ResponseWriter(transport, server.files, server.unsent, self.close)
        self.muted_until = 0.0
        """No request is read before this time (real time, seconds): a client over its quota (KIP-219)."""
        self.heard_at = real_time.monotonic()
        """When the peer was last heard, or a response to it was completed (real time, seconds)."""
        self.close_reason: str | None = None
        """The reason that the log gives for its end, unless a CloseConnection ends it; `close` and a refused log-in
        set it. None: the log has none.
        """
        self.authentication_handler: Callable[[memoryview], Pending[Any] | None] | None = None
        """Takes frames in place of the dispatcher: for a log-in, and after it to see a renewal and the end of the
        session.
        """
        self.needs_no_authentication: Callable[[int], bool] | None = None
        """Whether requests with this API key need not go through the authentication handler. None: all go."""
        self.frame_bytes_max: int | None = None
        """A smaller limit than the server's, before the log-in."""
        self.must_log_in_since: float | None = None
        """Since when (real time, seconds) its log-in has not been complete: what it sends does not keep it open."""
        self.knows_versions = False
        """Whether an ApiVersions of its was served."""
        self.is_cut_off = False
        """Whether a fault keeps what the peer sends from the handlers, as if the peer had stopped."""
        self.is_token_authenticated = False
        """Whether the peer has logged in by a delegation token."""
        self.on_close: Callable[[], None] | None = None
        """Called once it is closed, for what ends with it, such as share sessions."""
        self._security = listener.security
        self._server = server
        self._is_waiting = False
        """Whether a response is being waited for."""

    # -- what a kind of connection does its own way

    async def _serve(self) -> None:
        """Handle requests until the peer closes. Raises CloseConnection, DecodeError, ConnectionLost, OSError."""
        raise NotImplementedError

    async def wait_drained(self) -> None:
        """Wait until no earlier response is pending. Raises ConnectionLost if the peer was lost before that."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Send the responses in the writer, unless earlier ones are pending. Raises as `ResponseWriter.flush`."""
        raise NotImplementedError

    def dispatch_authenticated(self, frame: memoryview) -> Pending[Any] | None:
        """Dispatch a request without asking the authentication handler. Returns a response to wait for, or None."""
        raise NotImplementedError

    def charge(self, seconds: float) -> None:
        """A request has taken so long: the peer's next ones may have to wait until others had their turn."""

    def _forget_prefixes(self) -> None:
        """Forget the prefixes of earlier Produce requests: the principal has changed, or the connection is muted."""

    # -- the peer

    async def serve(self) -> None:
        """Respond to requests until the peer closes or breaks the protocol, or the server closes the connection."""
        try:
            try:
                if self._security is not None:
                    await self._security.establish(self)
                await self._serve()
                if self.close_reason is not None:
                    self._log_close(self.close_reason)
            except (CloseConnection, DecodeError) as why:
                self._log_close(
                    why.reason if isinstance(why, CloseConnection) else Reason("malformed request: {}", why)
                )
                # Responses to earlier requests leave first: Kafka reads no request before it has sent them.
                await self.wait_drained()
                if isinstance(why, AuthenticationFailed):
                    await real_time.sleep(why.delay_s)
                if self.writer.out:
                    await self.writer.flush()
        except CloseConnection as why:
            self._log_close(why.reason)
        except (OSError, trio.ClosedResourceError, ConnectionLost) as error:
            if self.close_reason is not None:
                self._log_close(self.close_reason)
            else:
                log.debug("connection lost", peer=self.transport.peer, error=str(error))
        except Exception:
            log.exception("a connection failed with an internal error", peer=self.transport.peer)
            self._server.note_internal_error()
        finally:
            self.writer.discard()
            self.transport.close()
            self._server.forget(self)
            if self.on_close is not None:
                self.on_close()

    @property
    def principal(self) -> str:
        """Who the peer is; what it may do, and what the fast paths remember, depends on it."""
        return self._principal

    @principal.setter
    def principal(self, principal: str) -> None:
        self._principal = principal
        self._forget_prefixes()

    @property
    def security_protocol(self) -> str:
        """The listener's protocol (Kafka: ``SecurityProtocol``)."""
        return "PLAINTEXT" if self._security is None else self._security.protocol

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as is known, and no fault holds back what the peer sends."""
        return self in self._server.connections and not self.is_cut_off

    def close(self, reason: str) -> None:
        """Close from another task; `serve` ends with that reason in the log."""
        self.close_reason = reason
        self.transport.close()

    def idle_since(self) -> float | None:
        """Since when neither side has sent or read anything (real time, seconds); None while a response is awaited."""
        if self.writer.blocked_since is not None:
            return self.writer.blocked_since
        if self.must_log_in_since is not None:
            return self.must_log_in_since
        return None if self._is_waiting else self.heard_at

    def _log_close(self, reason: str) -> None:
        address, _, port = self.transport.peer.rpartition(":")
        about = {"peer": address, "reason": reason}
        self._server.lines.write(log.warning, "connection closed", about, port=port)

    # -- reading

    def _frame_size(self, view: memoryview, position: int) -> int:
        """Return the size of the frame at ``position``, in bytes. Raises CloseConnection if it is out of bounds."""
        size: int = _size_at(view, position)[0]
        if not FIXED_HEADER_SIZE <= size <= self._server.max_frame_bytes or self.frame_bytes_max is not None:
            self._check_frame_size(view, position, size)
        return size

    def _check_frame_size(self, view: memoryview, position: int, size: int) -> None:
        key, least, limit = "socket.request.max.bytes", FIXED_HEADER_SIZE, self._server.max_frame_bytes
        if self.frame_bytes_max is not None:  # a token after SaslHandshake 0 has no request header
            key, least, limit = "sasl.server.max.receive.size", 0, self.frame_bytes_max
        if not least <= size <= limit:
            raise CloseConnection(
                unexpected_bytes(view[position : position + 4])
                or Reason("a frame of {} bytes; the limit is {} ({})", size, limit, key)
            )

    async def _receive(self, view: memoryview) -> int:
        """Read into ``view``; return how many bytes, at least one. Raises CloseConnection if the peer has closed."""
        with view:
            while True:
                count = self.transport.receive_into(view)
                if count > 0:
                    return count
                if count == 0:
                    raise CloseConnection("the peer closed in the middle of a frame")
                self.heard_at = real_time.monotonic()
                await self.transport.wait_readable()

    def mute(self, milliseconds: float) -> None:
        """Read no request for that time, from now on."""
        self.muted_until = max(self.muted_until, real_time.monotonic() + milliseconds / 1000)
        self._forget_prefixes()

    async def wait_unmuted(self) -> None:
        """Send the ready responses, and wait until requests may be read again."""
        await self.flush()
        until, self.muted_until = self.muted_until, 0.0
        await real_time.sleep_until(until)

    async def be_silent(self) -> NoReturn:
        """Respond to no further request, and drop all that the peer sends, until it closes. Only for code that makes a
        response that the connection waits for. Raises ConnectionLost.
        """
        self.is_cut_off = True
        await self.flush()
        buffer = self._server.receive_buffer
        while True:
            count = self.transport.receive_into(buffer)
            if count == 0:
                raise ConnectionLost("the peer closed")
            if count == WOULD_BLOCK:
                await self.transport.wait_readable()
            else:
                await trio.lowlevel.checkpoint()
