"""A reactor of memory transports: what `oncelog.broker.seams.reactor` is for sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.reactor import Turn
from oncelog.broker.seams.transport import Transport


class MemoryReactor:
    """A `Reactor` that wakes a task for each turn."""

    def __init__(self) -> None:
        self.ended = 0
        """How many turns have left something to the task."""
        self._is_running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    def can_watch(self, transport: Transport) -> bool:
        return self._is_running

    async def turns(self, transport: Transport, turn: Turn) -> None:
        goes_on = True
        while goes_on:
            await transport.wait_readable()
            goes_on = turn(real_time.monotonic())
        self.ended += 1
