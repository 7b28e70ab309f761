"""The rest of a large frame goes from one socket to the other through a kernel pipe, and is not copied here.

An optimisation: without `Pipes` the same bytes pass through the shared buffer. It pays where much of one frame is left,
since a piece costs two system calls and Trio's turn, however large it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from oncelog.broker.net.connection import FAIR_BYTES
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from oncelog.broker.net.peer import Peer
    from oncelog.broker.seams.pipes import Pipe, Pipes
    from oncelog.broker.seams.transport import Transport

SPLICE_BYTES_MIN: Final = 256 * 1024
"""The rest of a frame is spliced if it has so many bytes; less is copied. Frames of 200 kB cost the same either way,
and of 100 kB a third more (docs/performance.md)."""
HEAD_READ_BYTES: Final = 16 * 1024
"""After a frame that was spliced so much is read, so that most of the next one can be spliced, too."""


class Blocks(Protocol):
    """Notes since when the target has read nothing."""

    blocked_since: float | None


class Splice:
    """One direction of a connection: from ``source`` to ``target``. ``peer`` is the client, of which it is noted
    when it, or upstream for it, was heard.
    """

    __slots__ = ("_blocks", "_peer", "_pipes", "_source", "_target")

    def __init__(
        self, pipes: Pipes, source: Transport, target: Transport, peer: Peer, blocks: Blocks
    ) -> None:
        self._pipes = pipes
        self._source = source
        self._target = target
        self._peer = peer
        self._blocks = blocks

    async def move(self, size: int) -> int:
        """Move the next ``size`` bytes. Returns how many are left: some if the source has ended, or no pipe is free.

        Raises OSError and trio.ClosedResourceError where one of both is lost.
        """
        pipes = self._pipes
        since_yield = 0
        while size:
            pipe = pipes.take()
            if pipe is None:
                return size
            try:
                count = pipe.fill(self._source, size)
                if count > 0:
                    size -= count
                    await self._drain(pipe, more=size > 0)
            finally:
                pipes.give_back(pipe)
            if count == 0:
                return size
            if count == WOULD_BLOCK:
                since_yield = 0
                self._peer.heard_at = real_time.monotonic()
                await self._source.wait_readable()
                continue
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await trio.lowlevel.checkpoint()
        return size

    async def _drain(self, pipe: Pipe, *, more: bool) -> None:
        """Empty the pipe, and wait while the target does not read."""
        while pipe.held:
            if pipe.drain(self._target, more=more) == WOULD_BLOCK:
                self._blocks.blocked_since = real_time.monotonic()
                await self._target.wait_writable()
                self._blocks.blocked_since = None
