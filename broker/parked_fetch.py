"""A Fetch that sleeps on exactly its partitions until its answer may go out, or its time is over.

What it waits for is most often the append of a Produce. The task that did it sends the answer itself
(`Parked.try_send`), which saves the records one turn of the event loop and the wake-up of another task. Where that
is not possible, and for everything else that ends the wait, the task of the Fetch's own connection does it.
(Kafka: ``DelayedFetch``, completed by the thread that appended.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from broker.request import Parked

if TYPE_CHECKING:
    from broker.handlers.fetch import Fetch
    from broker.log.partition_log import PartitionLog
    from wire.messages.fetch import FetchResponse


class ParkedFetch(Parked):
    __slots__ = ("_event", "_fetch", "_missing", "_response", "_seen", "_sent")

    def __init__(self, fetch: Fetch, max_wait_ms: int) -> None:
        super().__init__(self._wait(max_wait_ms))
        self._fetch = fetch
        self._event: trio.Event | None = None
        self._seen: dict[PartitionLog, int] = {}
        self._missing = 0
        self._response: FetchResponse | None = None
        self._sent = False

    def notify(self, log: PartitionLog) -> None:
        """`log`, whose `waiters` it is among, grew, or is no longer what it was."""
        size = log.size
        grown = size - self._seen[log]
        self._seen[log] = size
        self._missing -= grown
        if (self._missing <= 0 or grown <= 0) and self._event is not None and not self._event.is_set():
            self._event.set()
            self._fetch.node.woken.append(self)

    def try_send(self) -> None:
        fetch = self._fetch
        if self._event is None or self.send is None:
            return
        try:
            if fetch.read():
                self._response = fetch.respond()
                self.send(self._response)
                self._sent = True
        except Exception:
            pass  # the Fetch's own task meets it again, where it is told and logged

    async def _wait(self, max_wait_ms: int) -> FetchResponse | None:
        fetch = self._fetch
        try:
            with trio.move_on_after(max_wait_ms / 1000):
                while not fetch.ready:
                    await self._wait_for_bytes()
                    if self._response is None:
                        fetch.read()
            if self._sent:
                return None
            if self._response is not None:
                return self._response
            if not fetch.rows:
                fetch.read()
            return fetch.respond()
        except BaseException:
            if not self._sent:
                fetch.release()
            raise

    async def _wait_for_bytes(self) -> None:
        fetch = self._fetch
        logs = fetch.logs()
        if fetch.ready:
            return
        self._missing = fetch.min_bytes - fetch.size
        self._seen = {log: log.size for log in logs}
        self._event = trio.Event()
        for log in logs:
            log.waiters.add(self)
        try:
            await self._event.wait()
        finally:
            self._event = None
            for log in logs:
                log.waiters.discard(self)
