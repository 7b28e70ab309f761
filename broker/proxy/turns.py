"""Frames that only pass do so in a turn of the reactor, which wakes no task.

An optimisation: without a `Reactor` the two tasks of a connection do the same. A turn does what they do between two
waits. What has to wait or to be looked at, it leaves to its task: an unusual frame, the large rest of one, a peer
that does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.proxy.splicing import SPLICE_BYTES_MIN
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.link import UpstreamLink
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Transport


class Left(NamedTuple):
    """What a turn leaves to the task: bytes that pass, which the target has not taken, and those after them."""

    unsent: bytearray
    rest: bytearray


NOTHING = Left(bytearray(), bytearray())


class Turns:
    """One direction of a connection, from ``source`` to ``target``, through a buffer that others use, too."""

    __slots__ = ("_buffer", "_connection", "_left", "_pass", "_reactor", "_source", "_target")

    def __init__(
        self,
        reactor: Reactor,
        connection: ProxyConnection,
        source: Transport,
        target: Transport,
        buffer: memoryview,
        pass_frames: Callable[[memoryview], int],
    ) -> None:
        """``pass_frames`` returns the position of the first byte that does not pass."""
        self._reactor = reactor
        self._connection = connection
        self._source = source
        self._target = target
        self._buffer = buffer
        self._pass = pass_frames
        self._left = NOTHING

    async def run(self) -> Left:
        """Pass on what comes, until something is left to the task that calls; return it. It is empty at the end of
        the stream, which the next receive tells.

        Raises OSError and trio.ClosedResourceError where one of both sides is lost, CloseConnection.
        """
        await self._reactor.turns(self._source, self._turn)
        return self._left

    def _turn(self, now: float) -> bool:
        count = self._source.receive_into(self._buffer)
        if count <= 0:
            self._left = NOTHING
            return count == WOULD_BLOCK
        self._connection.heard_at = now
        view = self._buffer[:count]
        position = self._pass(view)
        if position == count:
            sent = self._target.send(view)
            if sent == count and self._is_complete():
                return True
        else:
            sent = self._target.send(view[:position]) if position else 0
        self._left = Left(bytearray(view[max(sent, 0) : position]), bytearray(view[position:]))
        return False

    def _is_complete(self) -> bool:
        """Whether the turn has done all there is to do. The bytes that were read have passed."""
        raise NotImplementedError


class RequestTurns(Turns):
    """From the client to upstream."""

    __slots__ = ()

    def __init__(
        self, reactor: Reactor, connection: ProxyConnection, link: UpstreamLink, buffer: memoryview
    ) -> None:
        super().__init__(
            reactor, connection, connection.transport, link.transport, buffer, connection.pass_requests
        )

    def _is_complete(self) -> bool:
        return self._connection.passing < SPLICE_BYTES_MIN


class ResponseTurns(Turns):
    """From upstream to the client."""

    __slots__ = ("_link",)

    def __init__(
        self, reactor: Reactor, connection: ProxyConnection, link: UpstreamLink, buffer: memoryview
    ) -> None:
        super().__init__(
            reactor, connection, link.transport, connection.transport, buffer, link.pass_responses
        )
        self._link = link

    def _is_complete(self) -> bool:
        connection, link = self._connection, self._link
        link.note_writing()
        if link.passing >= SPLICE_BYTES_MIN or link.is_made_next:
            return False
        connection.note_progress()
        return True
