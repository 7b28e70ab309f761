"""`LargeFetch`: a Fetch of very many partitions. Others have their turn while it is read and while it waits.

A request of a few bytes is one, if its session has so many. It does what `oncelog.broker.fetch.delayed` does, without
its shortcuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.scheduling.slices import in_slices
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.fetch.fetch import Fetch
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.wire.messages.fetch import FetchResponse

PARTITIONS_AT_ONCE = 1_000
"""A Fetch of more partitions is a large one."""
STEPS_AT_ONCE = 20
"""Steps in a slice: each reads some partitions."""


class LargeFetch:
    """Waits for up to ``max_wait_ms``, of the client's time, until ``fetch`` is ready."""

    def __init__(self, fetch: Fetch, max_wait_ms: int) -> None:
        self._fetch = fetch
        self._max_wait_ms = max_wait_ms
        self._watched: list[PartitionLog] = []
        self._event = trio.Event()

    def notify(self, log: PartitionLog) -> None:
        """A watched log grew or changed otherwise."""
        self._event.set()

    async def wait(self) -> FetchResponse:
        """Return the response."""
        fetch = self._fetch
        try:
            await in_slices(fetch.read_in_parts(), STEPS_AT_ONCE)
            if not fetch.ready:
                with real_time.move_on_after(self._max_wait_ms / 1000):
                    await self._wait_until_ready()
            if not fetch.ready:  # the time is over: respond with whatever is there now
                await in_slices(fetch.read_in_parts(), STEPS_AT_ONCE)
            response: FetchResponse = await in_slices(fetch.respond_in_parts(), STEPS_AT_ONCE)
            return response
        except BaseException:
            fetch.release()
            raise

    async def _wait_until_ready(self) -> None:
        fetch = self._fetch
        try:
            while not fetch.ready:
                self._unwatch()
                await in_slices(self._watch())
                await in_slices(fetch.read_in_parts(), STEPS_AT_ONCE)  # what came before the log was watched
                if not fetch.ready:
                    await self._event.wait()
        finally:
            self._unwatch()

    def _watch(self) -> Iterator[None]:
        """Have the logs call `notify` from now on, one at each step."""
        self._event = trio.Event()
        for log in self._fetch.logs():
            log.waiters.add(self)
            self._watched.append(log)
            yield

    def _unwatch(self) -> None:
        for log in self._watched:
            log.waiters.discard(self)
        self._watched.clear()
