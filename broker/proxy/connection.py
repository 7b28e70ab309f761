"""`ProxyConnection`: the connection of a client, with the upstream connection that its first request opens.

Two tasks serve it, one for each direction. Each has a `Mover`, which does what the relay of its direction says
(`oncelog.broker.proxy.relay`). The task of `ProxyConnection.serve` moves requests, and lets `RequestHandler` handle
those that are not forwarded as bytes; the other one is `UpstreamLink.run`.

Responses leave in the order of the requests. While a request is in flight or `UpstreamLink.run` writes, only
`UpstreamLink.run` writes to the client.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.logging.reasons import Reason
from oncelog.broker.net.base_connection import BaseConnection
from oncelog.broker.net.connection import OTHER_FRAME_BYTES_MAX
from oncelog.broker.proxy.mover import Mover, copied
from oncelog.broker.proxy.receivers import Awaited, Intercepted, OwnResponse
from oncelog.broker.proxy.relay.in_flight import IN_FLIGHT_MAX, InFlightRequests
from oncelog.broker.proxy.relay.relay import FULL, LOST
from oncelog.broker.proxy.relay.requests import RequestRelay
from oncelog.broker.proxy.request_handler import RequestHandler
from oncelog.broker.proxy.upstream_link import UpstreamLink
from oncelog.broker.requests.request import CloseConnection, ConnectionLost, Pending
from oncelog.wire.header import PRODUCE_KEY, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY

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
    """Opens the upstream connection of a client. The second argument: whether the client's first request itself carries
    the ids of the proxies that it has passed. Raises CloseConnection if that fails."""

LOGIN_KEYS = frozenset({SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})

_int16_at = struct.Struct(">h").unpack_from


class ProxyConnection(BaseConnection):
    """The state of one client and its upstream connection.

    Large frames go through ``pipes``, and what is only forwarded in turns of ``reactor``, if there are any.
    """

    __slots__ = (
        "_dispatcher",
        "_link",
        "_mover",
        "_open",
        "_pipes",
        "_reactor",
        "in_flight",
        "passed_ids",
        "progress",
        "renewal",
        "request_handler",
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
        self.in_flight = InFlightRequests()
        """The requests whose responses have not left, in their order."""
        self.passed_ids = b""
        """The ids of the proxies that the client has passed, as its ApiVersions says."""
        self.renewal: Renewal | None = None
        """The session at upstream, if it ends and is renewed here."""
        self.request_handler = RequestHandler(self, dispatcher)
        """Handles the requests that are not forwarded as bytes."""
        self.progress: trio.Event | None = None
        """What `_wait_progress` waits for: set when a response has left, or none will. None: nobody waits."""
        self._dispatcher = dispatcher
        self._open = open_upstream
        self._pipes = pipes
        self._reactor = reactor
        self._link: UpstreamLink | None = None
        relay = RequestRelay(self.in_flight, self, dispatcher.plans, dispatcher.plan, server.max_frame_bytes)
        self._mover = Mover(self, relay, transport, server.receive_buffer, self._act_on_state)

    # -- what every peer has

    async def _serve(self) -> None:
        await self._mover.run()

    async def serve(self) -> None:
        """See `BaseConnection.serve`. The upstream connection ends with it."""
        try:
            await super().serve()
        finally:
            if self._link is not None:
                self._link.end()
            self.note_lost()

    def close(self, reason: str) -> None:
        """See `BaseConnection.close`. Its task may wait for upstream, so that connection ends, too."""
        super().close(reason)
        if self._link is not None:
            self._link.end()

    async def wait_drained(self) -> None:
        """See `BaseConnection.wait_drained`."""
        while not self.is_quiet:
            await self._wait_progress()

    async def flush(self) -> None:
        """See `BaseConnection.flush`."""
        if self.is_quiet and self.writer.out:
            await self.writer.flush()

    def dispatch_authenticated(self, frame: memoryview) -> Pending[Any] | None:
        """See `BaseConnection.dispatch_authenticated`."""
        return Pending(self.request_handler.handle(frame))

    def idle_since(self) -> float | None:
        """See `BaseConnection.idle_since`."""
        if self._mover.blocked_since is not None:
            return self._mover.blocked_since
        if self._link is not None and self._link.mover.blocked_since is not None:
            return self._link.mover.blocked_since
        if self.in_flight and self.writer.blocked_since is None and self.must_log_in_since is None:
            return None
        return super().idle_since()

    # -- the other task

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in flight, and nobody writes to the client."""
        return not self.in_flight and (self._link is None or not self._link.is_writing)

    def note_progress(self) -> None:
        """A response has left, or none will."""
        if self.progress is not None:
            self.progress.set()
            self.progress = None

    def note_lost(self) -> None:
        """Either side has ended: nothing more is forwarded, and no response comes to what is in flight."""
        self._mover.relay.lose()
        self._fail_in_flight()

    def _fail_in_flight(self) -> None:
        """No response comes to what is in flight."""
        lost = ConnectionLost("the upstream connection was lost")
        while self.in_flight:
            receiver = self.in_flight.popleft().receiver
            if isinstance(receiver, Awaited):
                receiver.fail(lost)
            elif isinstance(receiver, Intercepted | OwnResponse) and receiver.context is not None:
                self._dispatcher.done(receiver.context, None, lost)
        self.note_progress()

    def _check_lost(self) -> None:
        """Raises ConnectionLost if the upstream connection has ended."""
        if self._mover.relay.state is LOST:
            raise ConnectionLost("the upstream connection was lost")

    async def wait_room(self) -> None:
        """Wait until fewer requests are in flight."""
        while len(self.in_flight) >= IN_FLIGHT_MAX:
            await self._wait_progress()

    async def _wait_progress(self) -> None:
        """Wait until a response has left. Only for the task of this connection."""
        self._check_lost()
        self.progress = trio.Event()
        await self.progress.wait()

    # -- requests that are not forwarded as bytes

    def _act_on_state(self, view: memoryview) -> Awaitable[memoryview]:
        """Do what the relay cannot (`Mover`): wait if too many requests are in flight, else handle the request."""
        return self._wait_with(view) if self._mover.relay.state is FULL else self._read_intercepted(view)

    async def _wait_with(self, view: memoryview) -> memoryview:
        """Wait until fewer requests are in flight; return a copy of ``view``."""
        view = copied(view)
        await self.wait_room()
        return view

    async def _read_intercepted(self, view: memoryview) -> memoryview:
        """Handle the request at the beginning of ``view``, after the rest of it has come; return a copy of what
        follows. Raises CloseConnection for a frame that is too large.
        """
        size = self._frame_size(view, 0)
        stop = 4 + size
        reserved = 0
        try:
            frame, view = bytearray(view[4:stop]), copied(view[stop:])
            if len(frame) < size:
                if size > OTHER_FRAME_BYTES_MAX and (len(frame) < 2 or _int16_at(frame)[0] != PRODUCE_KEY):
                    raise CloseConnection(Reason("a frame of {} bytes; only a Produce may be so large", size))
                await self._server.frame_budget.reserve(size)
                reserved = size
                await self._read_rest(frame, size)
            await self._dispatch(memoryview(frame))
        finally:
            if reserved:
                self._server.frame_budget.release(reserved)
        return view

    async def _read_rest(self, frame: bytearray, size: int) -> None:
        """Read the rest of a frame."""
        cut_short = "the peer closed in the middle of a frame"
        if self.must_log_in_since is None:
            await self._mover.read_rest(frame, size, cut_short)
            return
        logins = self._server.logins
        try:
            await self._mover.read_rest(frame, size, cut_short, partial(logins.hold, self.close))
        finally:
            logins.release(self.close)

    async def _dispatch(self, frame: memoryview) -> None:
        """Handle a frame, or let the log-in handle it."""
        authenticate = self.authentication_handler
        if authenticate is None:
            await self.request_handler.handle(frame)
            return
        if self.in_flight and len(frame) >= 2 and _int16_at(frame)[0] in LOGIN_KEYS:
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

    async def connect(self, *, carries_ids: bool = False) -> None:
        """Open the upstream connection, unless it is open. With ``carries_ids`` the request that opens it says which
        proxies it has passed. Raises LoopError, CloseConnection, ConnectionLost.
        """
        if self._link is None:
            try:
                transport = await self._open(self, carries_ids)
            except BaseException:
                self._fail_in_flight()
                raise
            self._link = UpstreamLink(self, self._dispatcher, self._server, transport)
            self._link.mover.join(self.transport, self._pipes, self._reactor)
            # A session is renewed between two frames, which only the task can do: no reactor.
            self._mover.join(transport, self._pipes, self._reactor if self.renewal is None else None)
            self._mover.renewal = self.renewal
            self._server.nursery.start_soon(self._link.run)
        self._check_lost()

    def send(self, data: Buffer) -> Awaitable[None]:
        """Send a request upstream. Raises OSError, trio.ClosedResourceError."""
        return self._mover.send(data)

    def is_response_task(self) -> bool:
        """Whether the task that calls is the one that reads responses."""
        return self._link is not None and self._link.is_own_task()
