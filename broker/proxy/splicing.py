"""`splice`: the rest of a large frame goes from one socket to the other through a kernel pipe, and is not copied here.

An optimisation: without `Pipes` the same bytes go through the shared buffer. It pays where much of one frame is left,
since a piece costs two system calls and Trio's turn, however large it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from oncelog.broker.net.connection import FAIR_BYTES
from oncelog.broker.proxy.relay.relay import FORWARD
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from oncelog.broker.proxy.mover import Mover
    from oncelog.broker.seams.pipes import Pipes

SPLICE_BYTES_MIN: Final = 256 * 1024
"""The rest of a frame is spliced if it has so many bytes; less is copied. Frames of 200 kB cost the same either way,
and of 100 kB a third more (bench/history.md)."""
HEAD_READ_BYTES: Final = 16 * 1024
"""Bytes of the first read after a spliced frame: few, so that most of the next frame can be spliced, too."""


async def splice(pipes: Pipes, mover: Mover) -> None:
    """Move what the relay forwards, to the end of that, or until the source has ended or no pipe is free. The relay
    sees none of the bytes.

    Raises OSError and trio.ClosedResourceError where one of both sides is lost.
    """
    relay, source, target = mover.relay, mover.source, mover.target
    assert target is not None, "the beginning of the frame was sent to it"
    since_yield = 0
    while relay.state is FORWARD:
        pipe = pipes.take()
        if pipe is None:
            return
        try:
            count = pipe.fill(source, relay.left)
            while pipe.held:  # and wait while the target does not read
                if pipe.drain(target, more=count < relay.left) == WOULD_BLOCK:
                    await mover.wait_writable()
        finally:
            pipes.give_back(pipe)
        if count == 0:
            return
        if count == WOULD_BLOCK:
            since_yield = 0
            mover.connection.heard_at = real_time.monotonic()
            await source.wait_readable()
            continue
        relay.take_forwarded(count)
        since_yield += count
        if since_yield >= FAIR_BYTES:
            since_yield = 0
            await trio.lowlevel.checkpoint()
