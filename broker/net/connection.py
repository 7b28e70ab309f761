"""One connection: bytes in, frames to the dispatcher, responses out in order. It knows nothing of handlers.

Bytes are read into one buffer that all connections of a node share, every complete request in it is dispatched at
once, and the responses leave in one send. Nothing here awaits unless it must: a task switch costs more than a small
Produce. Three rules keep that right:

* Before anything waits, the unread rest of the shared buffer is copied, and the ready responses are sent.
* A connection owns memory only for a frame that is not complete yet; it is reserved in the server's budget.
* After `FAIR_BYTES` or `FAIR_REQUESTS` without a wait the task yields, so that a busy peer starves nobody.

All times here are real time, since they are about the peer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.net.base_connection import BaseConnection
from oncelog.broker.net.server import SHARED_BUFFER_BYTES
from oncelog.broker.net.unexpected_bytes import unexpected_bytes
from oncelog.broker.net.writer import SEND_SOON_BYTES
from oncelog.broker.requests.request import CloseConnection, ConnectionLost, DelayedProduce
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.header import FIXED_HEADER_SIZE, PRODUCE_KEY

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from oncelog.broker.dispatch.dispatcher import Dispatcher
    from oncelog.broker.dispatch.fast_produce import ProducePrefixes
    from oncelog.broker.net.server import BoundListener, Server
    from oncelog.broker.requests.request import Pending
    from oncelog.broker.seams.transport import Transport

BEGINNING_BYTES = 4 * 1024
"""Bytes of the first read after a large frame. Another large one probably follows, and its beginning is copied."""
FAIR_BYTES = 1024 * 1024
FAIR_REQUESTS = 256
FAIR_S = 0.02
"""How much a connection may do before it yields to the others: `FAIR_S` seconds count as `FAIR_REQUESTS`."""
REQUESTS_PER_SEND = 32
"""Sending `SEND_SOON_BYTES` counts as so many requests towards `FAIR_REQUESTS`."""
OTHER_FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the largest request that is no Produce. Decoded fields take many times their size; records take none."""
PENDING_RESPONSES_MAX = 1024
"""Produce responses of one connection that may be pending before it stops reading."""

_key_at = struct.Struct(">h").unpack_from

log = get_logger(__name__)


class Connection(BaseConnection):
    """The connection of a client to a broker."""

    __slots__ = ("_dispatcher", "_drained", "_lost", "_requests", "pending", "produce_prefixes")

    def __init__(
        self,
        dispatcher: Dispatcher,
        server: Server[Connection],
        transport: Transport,
        listener: BoundListener,
    ) -> None:
        super().__init__(server, transport, listener)
        self.pending: deque[Pending[Any]] = deque()
        """Produce responses that wait for the disk or for followers while reading goes on. While there are any, only
        the task of `_respond_in_order` writes.
        """
        self.produce_prefixes: ProducePrefixes | None = None
        """What the fast path of Produce knows of this connection."""
        self._dispatcher = dispatcher
        self._drained: trio.Event | None = None
        """The event of `pending` becoming empty; None while it is empty."""
        self._lost = False
        """Whether a response from `pending` could not be sent."""
        self._requests = 0
        """Work since the task last waited, in requests: `charge` and what is sent count as some, as does what others
        have to do (`_head_start`).
        """

    def _forget_prefixes(self) -> None:
        self.produce_prefixes = None

    def charge(self, seconds: float) -> None:
        """See `BaseConnection.charge`."""
        self._requests += int(seconds * (FAIR_REQUESTS / FAIR_S))

    def dispatch_authenticated(self, frame: memoryview) -> Pending[Any] | None:
        """Dispatch a request without asking the authentication handler. See `Dispatcher.dispatch`."""
        return self._dispatcher.dispatch(self, frame)

    async def flush(self) -> None:
        """See `BaseConnection.flush`."""
        if not self.pending:
            await self.writer.flush()

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
                since_yield = 0
                self._requests = self._head_start() if self._server.yielding else 0
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
            authenticate = self.authentication_handler
            pending = (
                dispatcher.dispatch(self, view[start:position])
                if authenticate is None
                else authenticate(view[start:position])
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
                self._requests += REQUESTS_PER_SEND
            if self._requests >= FAIR_REQUESTS:
                await self._yield()
        return view[position:end]

    async def _yield(self) -> None:
        """Give the others their turn."""
        self.heard_at = real_time.monotonic()
        self._server.yielding += 1
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._server.yielding -= 1
        self._requests = self._head_start()

    def _head_start(self) -> int:
        """Return with how many requests a turn begins: where others have more to do, it is shorter, so that a round of
        them all takes as long as one turn.
        """
        return FAIR_REQUESTS - max(1, FAIR_REQUESTS // (1 + self._server.yielding))

    async def _finish_frame(self, rest: memoryview) -> int:
        """Read the remainder of a frame that has begun into memory of its own, and handle it; return its size."""
        head = bytearray(rest)
        if self.writer.out and not self.pending:
            await self.writer.flush()
        wanted = 4 + FIXED_HEADER_SIZE
        while len(head) < wanted:
            more = bytearray(wanted - len(head))
            count = await self._receive(memoryview(more))
            head += more[:count]
            if len(head) >= 4:
                wanted = 4 + min(FIXED_HEADER_SIZE, self._frame_size(memoryview(head), 0))
        size = 4 + self._frame_size(memoryview(head), 0)
        api_key = _key_at(head, 4)[0] if size >= 6 else -1
        # a Produce may be larger: its records are not copied
        if size > OTHER_FRAME_BYTES_MAX and api_key != PRODUCE_KEY:
            raise CloseConnection(
                unexpected_bytes(head)
                or Reason("a frame of {} bytes for API key {}; only a Produce may be so large", size, api_key)
            )
        budget = self._server.frame_budget
        await budget.reserve(size)
        is_logged_in = self.must_log_in_since is None
        buffer = self._server.take_buffer(size) if is_logged_in else bytearray(len(head))
        try:
            have = len(head)
            buffer[:have] = head  # makes a shorter buffer as long as the head
            if not is_logged_in:
                self._server.logins.hold(self.close, have)
            while have < size:
                if have == len(buffer) and is_logged_in:
                    self._server.grow(buffer, size)
                elif have == len(buffer):
                    self._server.logins.hold(self.close, self._server.grow_slowly(buffer, size))
                with memoryview(buffer) as whole:
                    have += await self._receive(whole[have : min(size, len(buffer))])
            with memoryview(buffer) as whole:
                self._requests += 1
                take = self.authentication_handler or self.dispatch_authenticated
                pending = take(whole[4:size])
            if pending is not None and not self._enqueue(pending):
                await self._respond(pending)
        finally:
            self._server.logins.release(self.close)
            self._server.return_buffer(buffer)
            budget.release(size)
        return size

    # -- pending responses

    async def _respond(self, pending: Pending[Any]) -> None:
        """Wait for a response and write it behind the others; no request is read meanwhile."""
        if isinstance(pending, DelayedProduce):  # it is queued, and the queue is full
            await self.wait_drained()
            return
        try:
            if self.writer.out and not self.pending:
                await self.writer.flush()
            pending.on_turn()
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

    def _enqueue(self, pending: Pending[Any]) -> bool:
        """Queue a delayed Produce; return whether the connection may read on: not for any other response, which is
        not queued, and not when the queue has become full.
        """
        if not isinstance(pending, DelayedProduce):
            return False
        self.pending.append(pending)
        if self._drained is None:
            self._drained = trio.Event()
            self._server.nursery.start_soon(self._respond_in_order, self._drained)
        return len(self.pending) < PENDING_RESPONSES_MAX

    async def _respond_in_order(self, drained: trio.Event) -> None:
        """Complete the `pending` responses in order; a task of its own. It goes on if the peer is lost: consumers see
        the records only after the flushes that it waits for.
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
            log.exception("a connection failed with an internal error", peer=self.transport.peer)
            self._lost = True
            self.close("an internal error")
            self._server.note_internal_error()
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
