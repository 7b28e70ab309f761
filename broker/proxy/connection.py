"""`ProxyConnection`: the connection of a client, and the requests that pass from it upstream as bytes.
`oncelog.broker.proxy.request_handler` has those that do not pass so, `oncelog.broker.proxy.link` the way back.

A client's connection has one upstream connection, opened with the first request that needs it. Two tasks serve them,
one for each direction. Requests that nobody has to see are forwarded from the buffer that all connections share:
their headers are read, and consecutive ones leave in one send. A frame of which only a part has come passes on as it
comes. If upstream does not read, the task waits and reads nothing more from the client.

Responses leave in the order of the requests: `owed` has an entry for each that is to come. While it has any, or the
other task writes, only that task writes to the client.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.logging.reasons import Reason
from oncelog.broker.net.connection import FAIR_BYTES, OTHER_FRAME_BYTES_MAX
from oncelog.broker.net.peer import Peer
from oncelog.broker.proxy.acks import HEAD_BYTES, acks_of
from oncelog.broker.proxy.link import UpstreamLink
from oncelog.broker.proxy.owed import Awaited, Owed
from oncelog.broker.proxy.request_handler import RequestHandler
from oncelog.broker.proxy.splicing import HEAD_READ_BYTES, SPLICE_BYTES_MIN
from oncelog.broker.proxy.turns import RequestTurns
from oncelog.broker.requests.request import CloseConnection, ConnectionLost, Pending
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.header import PRODUCE_KEY, REQUEST_PREFIX_SIZE, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.net.server import BoundListener, Server
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.proxy.upstream_logins import Renewal
    from oncelog.broker.seams.pipes import Pipes
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Transport
    from oncelog.wire.primitives import Buffer

    OpenUpstream = Callable[["ProxyConnection", bool], Awaitable[Transport]]
    """Opens the upstream connection of a client; says whether its first request carries the ids of the proxies that it
    has passed. Raises CloseConnection if that fails."""

OWED_MAX = 1024
"""Responses that a client may be owed before no more of its requests are read."""
FIRST_BYTES = 64 * 1024
"""Bytes that are allocated for a frame that has not arrived whole; more as it comes."""
LOGIN_KEYS = frozenset({SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})

_head_at = struct.Struct(">iii").unpack_from
_int16_at = struct.Struct(">h").unpack_from


class ProxyConnection(Peer):
    """The state of one client and its upstream connection.

    Large frames go through ``pipes``, and what only passes in turns of ``reactor``, if there are any.
    """

    __slots__ = (
        "_dispatcher",
        "_is_lost",
        "_is_stopped",
        "_link",
        "_open",
        "_passed_whole",
        "_pipes",
        "_quiet",
        "_reactor",
        "_room",
        "_turns",
        "node_id",
        "owed",
        "passed",
        "passing",
        "renewal",
        "requests",
    )

    def __init__(
        self,
        dispatcher: ProxyDispatcher,
        open_upstream: OpenUpstream,
        pipes: Pipes | None,
        reactor: Reactor | None,
        server: Server[ProxyConnection],
        transport: Transport,
        listener: BoundListener,
    ) -> None:
        super().__init__(server, transport, listener)
        self.node_id = listener.node_id
        """The upstream node whose port the client has connected to; None for any of them."""
        self.owed: deque[Owed] = deque()
        self.passed = b""
        """The ids of the proxies that the client has passed, as its ApiVersions says."""
        self.renewal: Renewal | None = None
        """The session at upstream, if it ends and is renewed here."""
        self.requests = RequestHandler(self, dispatcher)
        """Handles the requests that do not pass as bytes."""
        self._dispatcher = dispatcher
        self._open = open_upstream
        self._pipes = pipes
        self._reactor = reactor
        self._link: UpstreamLink | None = None
        self._turns: RequestTurns | None = None
        self.passing = 0
        """Bytes that are left of a request of which the beginning was forwarded."""
        self._is_lost = False
        """Whether the upstream connection has ended, or could not be opened."""
        self._is_stopped = False
        """Whether the frame after those that were passed needs a closer look."""
        self._passed_whole = False
        """Whether nothing was looked at of what was read last: then what comes next probably passes, too."""
        self._quiet: trio.Event | None = None
        """Set when nothing is owed any more, if somebody waits for that."""
        self._room: trio.Event | None = None
        """Set when less is owed, if this connection has too much in flight."""

    # -- what every peer has

    async def serve(self) -> None:
        """See `Peer.serve`. The upstream connection ends with it."""
        try:
            await super().serve()
        finally:
            if self._link is not None:
                self._link.end()
            self.note_lost()

    def close(self, reason: str) -> None:
        """See `Peer.close`. Its task may wait for upstream, so that connection ends, too."""
        super().close(reason)
        if self._link is not None:
            self._link.end()

    async def wait_drained(self) -> None:
        """See `Peer.wait_drained`."""
        while not self.is_quiet:
            self._check_link()
            self._quiet = trio.Event()
            await self._quiet.wait()

    async def flush(self) -> None:
        """See `Peer.flush`."""
        if self.is_quiet and self.writer.out:
            await self.writer.flush()

    def dispatch_now(self, frame: memoryview) -> Pending[Any] | None:
        """See `Peer.dispatch_now`."""
        return Pending(self.requests.handle(frame))

    def idle_since(self) -> float | None:
        """See `Peer.idle_since`."""
        if self._link is not None and self._link.blocked_since is not None:
            return self._link.blocked_since
        if self.owed and self.writer.blocked_since is None and self.must_log_in_since is None:
            return None
        return super().idle_since()

    # -- the other task

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is owed, and nobody writes to the client."""
        return not self.owed and (self._link is None or not self._link.is_writing)

    def note_progress(self) -> None:
        """A response has left."""
        if self._room is not None and len(self.owed) < OWED_MAX:
            self._room.set()
            self._room = None
        if self._quiet is not None and self.is_quiet:
            self._quiet.set()
            self._quiet = None

    def note_lost(self) -> None:
        """The upstream connection has ended: what is owed will not come."""
        lost = ConnectionLost("the upstream connection was lost")
        self._is_lost = True
        while self.owed:
            to = self.owed.popleft().to
            if isinstance(to, Awaited):
                to.fail(lost)
            elif to is not None and to.context is not None:
                self._dispatcher.done(to.context, None, lost)
        for event in (self._room, self._quiet):
            if event is not None:
                event.set()
        self._room = self._quiet = None

    def _check_link(self) -> None:
        """Raises ConnectionLost if the upstream connection has ended."""
        if self._is_lost:
            raise ConnectionLost("the upstream connection was lost")

    # -- reading

    async def _serve(self) -> None:
        transport = self.transport
        shared = self._server.receive_buffer
        rest: Buffer = b""
        limit = len(shared)
        is_empty = False  # whether the last read has probably taken all there was
        since_yield = 0
        while True:
            have = len(rest)
            if have >= limit:
                if limit == len(shared):
                    raise CloseConnection("the header of a request is too long")
                limit = len(shared)
            if have:  # the other connections use the buffer, too
                shared[:have] = rest
            count = WOULD_BLOCK if is_empty else transport.receive_into(shared[have:limit])
            if count == WOULD_BLOCK:
                is_empty = False
                since_yield = 0
                self.heard_at = real_time.monotonic()
                if self._turns is None or have or not self._passed_whole or limit < len(shared):
                    await transport.wait_readable()  # this task probably has to do something
                    continue
                unsent, came = await self._turns.run()
                if unsent:
                    assert self._link is not None, "turns begin with it"
                    await self._link.send(unsent)
                rest = await self._take(memoryview(came))
            elif count == 0:
                return
            else:
                end = have + count
                is_empty = end < limit
                rest = await self._take(shared[:end])
            limit = len(shared)
            link = self._link
            if self.passing >= SPLICE_BYTES_MIN and link is not None and link.requests is not None:
                self.passing = await link.requests.move(self.passing)
                limit, is_empty = HEAD_READ_BYTES, False
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await trio.lowlevel.checkpoint()

    async def _take(self, view: memoryview) -> Buffer:
        """Forward or handle all frames in ``view``; return the beginning of one that is not known yet."""
        self._passed_whole = True
        while True:
            if (
                self.renewal is not None
                and not self.passing
                and self.renewal.is_due
                and self._link is not None
            ):
                view = memoryview(bytes(view))  # others use the buffer while this task waits
                await self.requests.renew(self._link, self.renewal)
            position = self.pass_requests(view)
            if position:
                run, view = view[:position], view[position:]
                link = self._link
                if link is not None:
                    sent = link.transport.send(run)
                    if sent != position:
                        run, view = self._owned(run[max(sent, 0) :], view)
                        await link.send(run)
                else:
                    run, view = self._owned(run, view)
                    await (await self.connected()).send(run)
            if self._is_stopped:
                self._passed_whole = False
                view = await self._look(view)
            elif len(view) >= HEAD_BYTES and len(self.owed) >= OWED_MAX:
                _, view = self._owned(b"", view)
                await self.wait_room()
            else:
                return bytes(view)

    @staticmethod
    def _owned(run: Buffer, view: Buffer) -> tuple[memoryview, memoryview]:
        """Return copies: the task is going to wait, and others use the buffer."""
        return memoryview(bytes(run)), memoryview(bytes(view))

    def pass_requests(self, view: memoryview) -> int:
        """Note what is owed for the requests in ``view`` that pass; return the position of the first byte that does
        not, and set whether it begins a frame that needs a closer look.
        """
        end = len(view)
        position = self.passing
        self._is_stopped = False
        if position > end:
            self.passing = position - end
            return end
        self.passing = 0
        lets_pass = self.lets_pass
        if self.authentication_handler is not None and lets_pass is None:
            self._is_stopped = end - position >= 4
            return position
        owed = self.owed
        plans = self._dispatcher.plans
        limit = self._server.max_frame_bytes
        while end - position >= HEAD_BYTES:
            size, key_and_version, correlation_id = _head_at(view, position)
            if not REQUEST_PREFIX_SIZE <= size <= limit:
                self._is_stopped = True
                break
            plan = plans.get(key_and_version) or self._dispatcher.plan(key_and_version)
            if plan.needs_look or (lets_pass is not None and not lets_pass(plan.key)):
                self._is_stopped = True
                break
            if len(owed) >= OWED_MAX:
                break
            if plan.key == PRODUCE_KEY:
                acks = acks_of(view, position, plan.is_flexible)
                if acks is None and position + 4 + size > end:
                    break  # they are still to come
                if acks != 0:
                    owed.append(Owed(correlation_id, plan))
            else:
                owed.append(Owed(correlation_id, plan))
            position += 4 + size
            if position > end:
                self.passing = position - end
                return end
        return position

    async def _look(self, view: memoryview) -> memoryview:
        """Handle the frame at the beginning of ``view``, after the rest of it has come; return a copy of what follows.

        Raises CloseConnection for a frame that is too large.
        """
        size = self._frame_size(view, 0)
        stop = 4 + size
        reserved = 0
        try:
            if len(view) >= stop:
                frame = bytearray(view[4:stop])
                view = memoryview(bytes(view[stop:]))
            else:
                frame = bytearray(view[4:])
                view = memoryview(b"")
                if size > OTHER_FRAME_BYTES_MAX and (len(frame) < 2 or _int16_at(frame)[0] != PRODUCE_KEY):
                    raise CloseConnection(Reason("a frame of {} bytes; only a Produce may be so large", size))
                await self._server.frame_budget.reserve(size)
                reserved = size
                await self._finish(frame, size)
            await self._handle_gated(memoryview(frame))
        finally:
            if reserved:
                self._server.frame_budget.release(reserved)
        return view

    async def _finish(self, frame: bytearray, size: int) -> None:
        """Read the rest of a frame."""
        have = len(frame)
        logins = self._server.logins if self.must_log_in_since is not None else None
        try:
            while have < size:
                if have == len(frame):
                    frame += bytes(min(size - have, max(FIRST_BYTES, have)))
                    if logins is not None:
                        logins.hold(self.close, len(frame) - have)
                with memoryview(frame) as whole:
                    have += await self._receive(whole[have:])
        finally:
            if logins is not None:
                logins.release(self.close)

    # -- requests that are looked at

    async def _handle_gated(self, frame: memoryview) -> None:
        """Handle a frame, or let the log-in handle it."""
        authenticate = self.authentication_handler
        if authenticate is None:
            await self.requests.handle(frame)
            return
        if self.owed and len(frame) >= 2 and _int16_at(frame)[0] in LOGIN_KEYS:
            await self.wait_drained()
        pending = authenticate(frame)
        if pending is not None:
            await pending.wait()
        await self.flush()

    # -- upstream

    @property
    def is_connected(self) -> bool:
        """Whether the upstream connection has been opened."""
        return self._link is not None

    async def connected(self, *, carries_ids: bool = False) -> UpstreamLink:
        """Return the upstream connection, which the first call opens. With ``carries_ids`` the request that opens it
        says which proxies it has passed. Raises LoopError, CloseConnection, ConnectionLost.
        """
        link = self._link
        if link is None:
            try:
                transport = await self._open(self, carries_ids)
            except BaseException:
                self.note_lost()
                raise
            link = self._link = UpstreamLink(
                self, self._dispatcher, self._server, transport, self._pipes, self._reactor
            )
            reactor = self._reactor
            if reactor is not None and reactor.can_watch(self.transport) and self.renewal is None:
                self._turns = RequestTurns(reactor, self, link, self._server.receive_buffer)
            self._server.nursery.start_soon(link.run)
        self._check_link()
        return link

    async def wait_room(self) -> None:
        """Wait until less is owed."""
        while len(self.owed) >= OWED_MAX:
            self._check_link()
            self._room = trio.Event()
            await self._room.wait()
