"""`Mover`: moves the bytes of one direction of a client's connection, as its relay says.

The bytes are read into the buffer that all connections share, and sent from it: what is forwarded leaves in one send,
however many frames it is. If the target does not read, the task waits, and reads nothing more from the source.

Two callers drive the relay: a task (`Mover.run`) and the reactor (`Mover._turn`). The reactor is an optimisation: it
does what the task does between two waits, and wakes no task. What has to wait or to be handled, it leaves to the task:
an intercepted frame, the large rest of one, a target that does not read. Another optimisation is `splice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.net.connection import FAIR_BYTES
from oncelog.broker.proxy.relay.relay import ADVANCING, LOST, WAIT
from oncelog.broker.proxy.splicing import HEAD_READ_BYTES, SPLICE_BYTES_MIN, splice
from oncelog.broker.requests.request import CloseConnection, ConnectionLost
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.relay.relay import Relay
    from oncelog.broker.proxy.upstream_logins import Renewal
    from oncelog.broker.seams.pipes import Pipes
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Transport
    from oncelog.wire.primitives import Buffer

FIRST_BYTES = 64 * 1024
"""Bytes that are allocated for a frame that has not arrived whole; more as it comes."""


class Mover:
    """From ``source`` to `target`. Where the relay does not advance, ``act_on_state`` does what its state says: it
    takes the unread bytes and returns the rest.
    """

    __slots__ = (
        "_act_on_state",
        "_buffer",
        "_forwards_all",
        "_pipes",
        "_reactor",
        "_rest",
        "_unsent",
        "blocked_since",
        "connection",
        "relay",
        "renewal",
        "source",
        "target",
    )

    def __init__(
        self,
        connection: ProxyConnection,
        relay: Relay,
        source: Transport,
        buffer: memoryview,
        act_on_state: Callable[[memoryview], Awaitable[memoryview]],
    ) -> None:
        self.connection = connection
        self.relay = relay
        self.source = source
        self.target: Transport | None = None
        """None before the upstream connection is open."""
        self.blocked_since: float | None = None
        """Since when the target has read nothing while bytes wait for it (real time, seconds)."""
        self.renewal: Renewal | None = None
        """The session at `target`, if it ends and is renewed here between two frames."""
        self._buffer = buffer
        self._act_on_state = act_on_state
        self._pipes: Pipes | None = None
        self._reactor: Reactor | None = None
        self._unsent = self._rest = bytearray()
        """What a turn has left to the task: bytes that the target has not taken, and those after them."""
        self._forwards_all = False
        """Whether nothing that was read last needed `act_on_state`: then what comes next probably does not, either."""

    def join(self, target: Transport, pipes: Pipes | None, reactor: Reactor | None) -> None:
        """Send to ``target`` from now on: large frames through ``pipes`` and small ones in turns of ``reactor``, where
        that can be.
        """
        self.target = target
        if pipes is not None and pipes.can_join(self.source, target):
            self._pipes = pipes
        if reactor is not None and reactor.can_watch(self.source):
            self._reactor = reactor

    async def run(self) -> None:
        """Move all that comes, to the end of the stream. Raises CloseConnection, ConnectionLost, OSError,
        trio.ClosedResourceError, and what the relay raises.
        """
        source, relay, connection, shared = self.source, self.relay, self.connection, self._buffer
        rest: Buffer = b""
        limit = len(shared)
        is_empty = False  # whether the last read has probably taken all there was
        since_yield = 0
        while True:
            have = len(rest)
            if have >= limit:
                # The relay forwards all but a header whose acks have not come: only a Produce's can fill the buffer.
                if limit == len(shared):
                    raise CloseConnection("the header of a request is too long")
                limit = len(shared)
            if have:  # the other connections use the buffer, too
                shared[:have] = rest
            count = WOULD_BLOCK if is_empty else source.receive_into(shared[have:limit])
            if count == WOULD_BLOCK:
                is_empty = False
                since_yield = 0
                connection.heard_at = real_time.monotonic()
                if self._reactor is None or have or not self._forwards_all or limit < len(shared):
                    await source.wait_readable()  # this task probably has to do something
                    continue
                await self._reactor.turns(source, self._turn)
                if self._unsent:
                    await self.send(self._unsent)
                rest = await self._take(memoryview(self._rest))
            elif count == 0:
                return
            else:
                end = have + count
                is_empty = end < limit
                rest = await self._take(shared[:end])
            limit = len(shared)
            if relay.left >= SPLICE_BYTES_MIN and self._pipes is not None:
                await splice(self._pipes, self)
                if relay.is_own_next:  # a response of the proxy's own, which needs no byte from upstream
                    rest = await self._take(shared[:0])
                limit, is_empty = HEAD_READ_BYTES, False
            if connection.progress is not None:
                connection.note_progress()
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await trio.lowlevel.checkpoint()

    async def _take(self, view: memoryview) -> Buffer:
        """Do what the relay says about ``view``; return the beginning of a frame that has not come far enough."""
        relay = self.relay
        self._forwards_all = True
        while True:
            if self.renewal is not None and self.renewal.is_due and relay.state is WAIT:
                view = copied(view)
                await self.connection.request_handler.renew(self.renewal)
            count = relay.advance(view)
            if count:
                run, view = view[:count], view[count:]
                sent = 0 if self.target is None else self.target.send(run)
                if sent != count:
                    run, view = copied(run[max(sent, 0) :]), copied(view)
                    await self.send(run)
                    continue  # the relay's state may have changed while this task waited
            if relay.state in ADVANCING:
                return bytes(view)
            if relay.state is LOST:
                raise ConnectionLost("the upstream connection was lost")
            self._forwards_all = False
            view = await self._act_on_state(view)
            relay.resume()

    def _turn(self, now: float) -> bool:
        """Forward what has come; see `Turn`. False wakes the task, which gets `_unsent` and `_rest`. At the end of the
        stream both are empty, and the task's own receive finds the end.
        """
        count = self.source.receive_into(self._buffer)
        if count <= 0:
            self._unsent = self._rest = bytearray()
            return count == WOULD_BLOCK
        connection, relay, target = self.connection, self.relay, self.target
        assert target is not None, "nothing is forwarded before it is open"
        connection.heard_at = now
        view = self._buffer[:count]
        position = relay.advance(view)
        if position == count:
            sent = target.send(view)
            if sent == count and relay.left < SPLICE_BYTES_MIN and relay.state in ADVANCING:
                if connection.progress is not None:
                    connection.note_progress()
                return True
        else:
            sent = target.send(view[:position]) if position else 0
        self._unsent, self._rest = bytearray(view[max(sent, 0) : position]), bytearray(view[position:])
        return False

    async def send(self, data: Buffer) -> None:
        """Send all of ``data``, which stays unchanged meanwhile; the first call opens the upstream connection. Raises
        OSError, trio.ClosedResourceError.
        """
        if self.target is None:
            await self.connection.connect()
            assert self.target is not None, "connect joins it"
        view, target = memoryview(data), self.target
        while view:
            sent = target.send(view)
            if sent == WOULD_BLOCK:
                await self.wait_writable()
            else:
                view = view[sent:]

    async def wait_writable(self) -> None:
        """Wait until the target reads. Raises trio.ClosedResourceError."""
        assert self.target is not None, "something was sent to it"
        self.blocked_since = real_time.monotonic()
        await self.target.wait_writable()
        self.blocked_since = None

    async def read_rest(
        self, frame: bytearray, size: int, cut_short: str, on_growth: Callable[[int], None] | None = None
    ) -> None:
        """Read the rest of a frame of ``size`` bytes. ``on_growth`` is told of the bytes that are allocated. Raises
        CloseConnection with the words ``cut_short`` if the source ends.
        """
        have = len(frame)
        while have < size:
            if have == len(frame):
                frame += bytes(min(size - have, max(FIRST_BYTES, have)))
                if on_growth is not None:
                    on_growth(len(frame) - have)
            with memoryview(frame) as whole, whole[have:] as room:
                count = self.source.receive_into(room)
            if count == 0:
                raise CloseConnection(cut_short)
            if count == WOULD_BLOCK:
                self.connection.heard_at = real_time.monotonic()
                await self.source.wait_readable()
            else:
                have += count


def copied(view: Buffer) -> memoryview:
    """Return a copy: the task is going to wait, and others use the buffer."""
    return memoryview(bytearray(view))
