"""One connection: bytes in, frames to the dispatcher, responses out in order. It knows nothing of handlers.

Bytes are read into one buffer that all connections of a node share, every complete request in it is dispatched at
once, and the responses leave in one send. Nothing here awaits unless it must: a task switch costs more than a small
Produce. Three rules keep that right:

* Before anything waits, the unread rest of the shared buffer is copied, and what is ready is sent.
* A connection owns memory only for a frame that is not complete yet; it is reserved in the server's budget.
* After `FAIR_BYTES` or `FAIR_REQUESTS` without a wait the task yields, so that a busy peer starves nobody.

All times here are real time, since they are about the peer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from oncelog.broker.logs import get_logger
from oncelog.broker.net.unexpected_bytes import unexpected_bytes
from oncelog.broker.net.writer import SEND_SOON_BYTES, ResponseWriter
from oncelog.broker.request import AuthenticationFailed, CloseConnection, ConnectionLost
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.errors import DecodeError
from oncelog.wire.header import PRODUCE_KEY, REQUEST_PREFIX_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from oncelog.broker.dispatch.fast_produce import ProduceFronts
    from oncelog.broker.net.server import Server
    from oncelog.broker.request import Pending
    from oncelog.broker.seams.transport import Transport
    from oncelog.broker.security.listener import ListenerSecurity

SHARED_BUFFER_BYTES = 256 * 1024
"""Size of the receive buffer that all connections share."""
BEGINNING_BYTES = 4 * 1024
"""Bytes of the first read after a large frame. Another large one probably follows, and its beginning is copied."""
FAIR_BYTES = 1024 * 1024
FAIR_REQUESTS = 256
"""How much a connection may do before it yields to the others."""
OTHER_FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the largest request but for Produce. Decoded fields take many times their size; records take none."""
PENDING_RESPONSES_MAX = 1024
"""Produce responses that may wait for an fsync on one connection before its reading stops."""
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a peer that does not log in (Kafka: ``KafkaPrincipal.ANONYMOUS``)."""

_SIZE = struct.Struct(">i")
_size_at = _SIZE.unpack_from
_key_at = struct.Struct(">h").unpack_from

log = get_logger(__name__)


class Connection:
    """The state of one peer; `serve` runs until either side closes."""

    __slots__ = (
        "_dispatcher",
        "_drained",
        "_is_waiting",
        "_lost",
        "_principal",
        "_requests",
        "_security",
        "_server",
        "client_id",
        "close_reason",
        "frame_bytes_max",
        "gate",
        "heard_at",
        "is_cut_off",
        "is_token_authenticated",
        "listener_name",
        "must_log_in_since",
        "muted_until",
        "pending",
        "produce_fronts",
        "transport",
        "writer",
    )

    def __init__(
        self,
        server: Server,
        transport: Transport,
        listener_name: str,
        security: ListenerSecurity | None = None,
    ) -> None:
        self.transport = transport
        self.listener_name = listener_name
        self.client_id: str | None = None
        """The client id of its latest decoded request."""
        self._principal = ANONYMOUS
        self.writer = ResponseWriter(transport, server.files)
        self.pending: deque[Pending[Any]] = deque()
        """Produce responses that wait for the disk while reading goes on. While there are any, only the task of
        `_respond_in_order` writes.
        """
        self.produce_fronts: ProduceFronts | None = None
        """What the fast path of Produce knows of this connection."""
        self.muted_until = 0.0
        """No request is read before this time (real time, seconds): a client over its quota (KIP-219)."""
        self.heard_at = real_time.monotonic()
        """When the peer was last heard, or a response to it was completed (real time, seconds)."""
        self.close_reason: str | None = None
        self.gate: Callable[[memoryview], Pending[Any] | None] | None = None
        """Takes frames in place of the dispatcher: a log-in, or a session that ends."""
        self.frame_bytes_max: int | None = None
        """A smaller limit than the server's, before the log-in."""
        self.must_log_in_since: float | None = None
        """Since when (real time, seconds) its log-in has not been complete: what it sends does not keep it open."""
        self.is_cut_off = False
        """Whether a fault keeps what the peer sends from the handlers, as if the peer had stopped."""
        self.is_token_authenticated = False
        """Whether the peer has logged in by a delegation token."""
        self._security = security
        self._server = server
        self._dispatcher = server.dispatcher
        self._drained: trio.Event | None = None
        """The event of `pending` becoming empty; None while it is empty."""
        self._lost = False
        """Whether a response from `pending` could not be sent."""
        self._requests = 0
        """Requests since the task last waited."""
        self._is_waiting = False
        """Whether a response is being waited for."""

    async def serve(self) -> None:
        """Respond to requests until the peer closes or breaks the protocol, or the server closes the connection."""
        try:
            try:
                if self._security is not None:
                    await self._security.establish(self)
                await self._serve()
            except (CloseConnection, DecodeError) as why:
                self._log_close(f"malformed request: {why}" if isinstance(why, DecodeError) else str(why))
                # Responses to earlier requests leave first: Kafka reads no request before it has sent them.
                await self.wait_drained()
                if isinstance(why, AuthenticationFailed):
                    await real_time.sleep(why.delay_s)
                if self.writer.out:
                    await self.writer.flush()
        except CloseConnection as why:
            self._log_close(str(why))
        except (OSError, trio.ClosedResourceError, ConnectionLost) as error:
            if self.close_reason is not None:
                self._log_close(self.close_reason)
            else:
                log.debug("connection lost", peer=self.transport.peer, error=str(error))
        except Exception:
            log.exception("a connection failed by our own fault", peer=self.transport.peer)
            self._server.note_bug()
        finally:
            self.writer.discard()
            self.transport.close()
            self._server.forget(self)

    @property
    def principal(self) -> str:
        """Who the peer is; what it may do, and what the fast paths remember, depends on it."""
        return self._principal

    @principal.setter
    def principal(self, principal: str) -> None:
        self._principal = principal
        self.produce_fronts = None

    @property
    def security_protocol(self) -> str:
        """The listener's protocol (Kafka: ``SecurityProtocol``)."""
        return "PLAINTEXT" if self._security is None else self._security.protocol

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as is known, and its peer is heard."""
        return self in self._server.connections and not self.is_cut_off

    def dispatch_now(self, frame: memoryview) -> Pending[Any] | None:
        """Handle a request, whatever the gate is. See `Dispatcher.dispatch`."""
        return self._dispatcher.dispatch(self, frame)

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

    async def _serve(self) -> None:
        receive_into = self.transport.receive_into
        shared = self._server.receive_buffer
        beginning = shared[:BEGINNING_BYTES]
        buffer = shared
        writer = self.writer
        dispatcher = self._dispatcher
        satisfied = dispatcher.satisfied_fetches
        since_yield = 0
        alone = False  # whether the last read gave one small request: usually nothing more has come then
        while True:
            count = WOULD_BLOCK if alone else receive_into(buffer)
            if count == WOULD_BLOCK:
                self.heard_at = real_time.monotonic()
                await self.transport.wait_readable()
                since_yield = self._requests = 0
                alone = False
                continue
            if count == 0:
                await self.wait_drained()
                return
            before = self._requests
            rest = await self._handle_frames(buffer[:count])
            alone = not rest and self._requests == before + 1
            if rest:
                size = await self._finish_frame(rest)
                since_yield += size
                buffer = beginning if size > SHARED_BUFFER_BYTES else shared
            else:
                buffer = shared
            if satisfied:
                dispatcher.complete_satisfied_fetches()
            if writer.out and not self.pending:
                await writer.flush()
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await self._yield()

    async def _handle_frames(self, view: memoryview) -> memoryview:
        """Handle every complete frame in ``view``; return the incomplete rest."""
        dispatcher, writer = self._dispatcher, self.writer
        position, end = 0, len(view)
        is_shared = True
        while end - position >= 4:
            size = self._frame_size(view, position)
            start = position + 4
            if end - start < size:
                break
            position = start + size
            self._requests += 1
            gate = self.gate
            pending = (
                dispatcher.dispatch(self, view[start:position])
                if gate is None
                else gate(view[start:position])
            )
            if pending is not None and self._enqueue(pending):
                pending = None
            send_now = len(writer.out) >= SEND_SOON_BYTES and not self.pending
            if pending is None and not send_now and self._requests < FAIR_REQUESTS:
                continue
            if is_shared:  # others use the buffer while this task waits
                is_shared = False
                view = memoryview(bytearray(view[position:end]))
                position, end = 0, len(view)
            if pending is not None:
                await self._respond(pending)
            elif send_now:
                await writer.flush()
            if self._requests >= FAIR_REQUESTS:
                await self._yield()
        return view[position:end]

    async def _yield(self) -> None:
        """Give the others their turn."""
        self._requests = 0
        self.heard_at = real_time.monotonic()
        await trio.lowlevel.checkpoint()

    def _frame_size(self, view: memoryview, position: int) -> int:
        """Return the size of the frame at ``position``, in bytes. Raises CloseConnection if it is out of bounds."""
        size: int = _size_at(view, position)[0]
        if (
            not REQUEST_PREFIX_SIZE <= size <= self._server.max_frame_bytes
            or self.frame_bytes_max is not None
        ):
            self._check_frame_size(view, position, size)
        return size

    def _check_frame_size(self, view: memoryview, position: int, size: int) -> None:
        key, least, limit = "socket.request.max.bytes", REQUEST_PREFIX_SIZE, self._server.max_frame_bytes
        if self.frame_bytes_max is not None:  # bare tokens have no prefix
            key, least, limit = "sasl.server.max.receive.size", 0, self.frame_bytes_max
        if not least <= size <= limit:
            raise CloseConnection(
                unexpected_bytes(view[position : position + 4])
                or f"a frame of {size} bytes; the limit is {limit} ({key})"
            )

    async def _finish_frame(self, rest: memoryview) -> int:
        """Read the remainder of a frame that has begun into memory of its own, and handle it; return its size."""
        head = bytearray(rest)
        if self.writer.out and not self.pending:
            await self.writer.flush()
        wanted = 4 + REQUEST_PREFIX_SIZE
        while len(head) < wanted:
            more = bytearray(wanted - len(head))
            count = await self._receive(memoryview(more))
            head += more[:count]
            if len(head) >= 4:
                wanted = 4 + min(REQUEST_PREFIX_SIZE, self._frame_size(memoryview(head), 0))
        size = 4 + self._frame_size(memoryview(head), 0)
        api_key = _key_at(head, 4)[0] if size >= 6 else -1
        if size > OTHER_FRAME_BYTES_MAX and api_key != PRODUCE_KEY:  # its records are not copied
            raise CloseConnection(
                unexpected_bytes(head)
                or f"a frame of {size} bytes for API key {api_key}; only a Produce may be so large"
            )
        budget = self._server.frame_budget
        await budget.reserve(size)
        buffer = self._server.take_buffer(size)
        try:
            have = len(head)
            buffer[:have] = head
            while have < size:
                if have == len(buffer):
                    self._server.grow(buffer, size)
                with memoryview(buffer) as whole:
                    have += await self._receive(whole[have : min(size, len(buffer))])
            with memoryview(buffer) as whole:
                self._requests += 1
                pending = self.dispatch_now(whole[4:size]) if self.gate is None else self.gate(whole[4:size])
            if pending is not None and not self._enqueue(pending):
                await self._respond(pending)
        finally:
            self._server.return_buffer(buffer)
            budget.release(size)
        return size

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

    # -- pending responses

    async def _respond(self, pending: Pending[Any]) -> None:
        """Wait for a response and write it behind the others; no request is read meanwhile."""
        if pending.reads_on:  # it is queued, and the queue is full
            await self.wait_drained()
            return
        try:
            if self.writer.out and not self.pending:
                await self.writer.flush()
            pending.on_next()
        except BaseException:
            pending.close()
            raise
        self._is_waiting = True
        try:
            await self._dispatcher.complete(pending)
            if self.muted_until:
                await self.wait_unmuted()
        finally:
            self._is_waiting = False
        self.heard_at = real_time.monotonic()

    async def wait_unmuted(self) -> None:
        """Send what is ready, and wait until requests may be read again."""
        if not self.pending:
            await self.writer.flush()
        until, self.muted_until = self.muted_until, 0.0
        await real_time.sleep_until(until)

    async def be_silent(self) -> NoReturn:
        """Respond to nothing any more and forget what the peer sends, until it closes. Only for who makes a response
        that the connection waits for. Raises ConnectionLost.
        """
        self.is_cut_off = True
        if not self.pending:
            await self.writer.flush()
        buffer = self._server.receive_buffer
        while True:
            count = self.transport.receive_into(buffer)
            if count == 0:
                raise ConnectionLost("the peer closed")
            if count == WOULD_BLOCK:
                await self.transport.wait_readable()
            else:
                await trio.lowlevel.checkpoint()

    def _enqueue(self, pending: Pending[Any]) -> bool:
        """Queue a response if it lets the connection read on. Returns False if it does not, or the queue is full."""
        if not pending.reads_on:
            return False
        self.pending.append(pending)
        if self._drained is None:
            self._drained = trio.Event()
            self._server.nursery.start_soon(self._respond_in_order, self._drained)
        return len(self.pending) < PENDING_RESPONSES_MAX

    async def _respond_in_order(self, drained: trio.Event) -> None:
        """Complete what is `pending`, in order; a task of its own. It goes on if the peer is lost: consumers see the
        records only after the flushes that it waits for.
        """
        pending = self.pending
        try:
            if self.writer.out:
                await self._unless_lost(self.writer.flush())
            while pending:
                await self._unless_lost(self._dispatcher.complete(pending[0]))
                if len(pending) == 1 or len(self.writer.out) >= SEND_SOON_BYTES:
                    await self._unless_lost(self.writer.flush())
                # Taken out only now: while it is there, nobody else writes to this connection.
                pending.popleft()
        except Exception:
            log.exception("a connection failed by our own fault", peer=self.transport.peer)
            self._lost = True
            self.close("see the error above")
            self._server.note_bug()
        finally:
            while pending:
                pending.popleft().close()
            self._drained = None
            drained.set()

    async def _unless_lost(self, step: Coroutine[None, None, None]) -> None:
        """Await ``step``; if that loses the peer, close the connection instead of raising."""
        try:
            await step
        except CloseConnection as why:
            self._lost = True
            self.writer.send_now()
            self.close(str(why))
        except (OSError, trio.ClosedResourceError):
            self._lost = True
            self.transport.close()

    async def wait_drained(self) -> None:
        """Wait until nothing is `pending`. Raises ConnectionLost if the peer was lost before that."""
        while self._drained is not None:
            await self._drained.wait()
        if self._lost:
            raise ConnectionLost("the peer was lost before its responses could be sent")
