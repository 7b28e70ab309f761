"""A Fetch that sleeps on exactly its partitions until its answer may go out, or its time is over.

What it waits for is most often the append of a Produce. The task that did it sends the answer itself
(`Parked.try_send`), which saves the records one turn of the event loop and the wake-up of another task. Where that
is not possible, and for everything else that ends the wait, the task of the Fetch's own connection does it.
(Kafka: ``DelayedFetch``, completed by the thread that appended.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.request import Parked
from oncelog.broker.seams.clock import real_time

INLINE_BYTES_MAX = 16 * 1024
"""Bytes of records up to which an answer holds them itself."""

if TYPE_CHECKING:
    from oncelog.broker.handlers.fetch import Fetch
    from oncelog.broker.handlers.table import Api
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.ready_answer import ReadyAnswer
    from oncelog.wire.messages.fetch import FetchResponse


class ParkedFetch(Parked):
    """Watches the logs of ``fetch``, which has just been read and was not ready."""

    __slots__ = ("_appended", "_event", "_fetch", "_missing", "_ready", "_response", "_seen", "_sent")

    def __init__(self, fetch: Fetch, max_wait_ms: int) -> None:
        super().__init__(self._wait(max_wait_ms))
        self._fetch = fetch
        self._response: FetchResponse | None = None
        self._sent = False
        self._ready: ReadyAnswer | None = None
        self._appended: tuple[PartitionLog, int, int, bytes] | None
        """What ended the wait for the only partition, if it was one small batch: its log, which ended then at an
        offset, the batch's base offset, and its bytes."""
        self._watch()

    def _watch(self) -> None:
        """From now on `notify` is told what changes after the last read."""
        fetch = self._fetch
        self._appended = None
        self._event = trio.Event()
        self._missing = fetch.min_bytes - fetch.size
        self._seen = {log: log.size for log in fetch.logs()}
        for log in self._seen:
            log.waiters.add(self)

    def _unwatch(self) -> None:
        for log in self._seen:
            log.waiters.discard(self)

    def notify(self, log: PartitionLog) -> None:
        """`log`, whose `waiters` it is among, grew, or is no longer what it was."""
        size = log.size
        grown = size - self._seen[log]
        self._seen[log] = size
        self._missing -= grown
        if (self._missing <= 0 or grown <= 0) and not self._event.is_set():
            self._event.set()
            self._fetch.services.woken.append(self)
            appended = log.appended
            if appended is not None and grown <= INLINE_BYTES_MAX and len(self._fetch.rows) == 1:
                self._appended = (log, log.log_end_offset, appended[0], bytes(appended[1]))

    def prepare(self, served: Api) -> None:
        self._ready = self._fetch.ready_answer(served)

    def try_send(self) -> None:
        # It may stand among the woken for a wait that is over, and twice: the next wait's end makes it so.
        if self._sent or self._response is not None or self.send is None or not self._event.is_set():
            return
        fetch = self._fetch
        try:
            if not (self._read_appended() if self._appended is not None else fetch.read()):
                return
            row = None if self._ready is None else fetch.respond_in_row()
            if row is not None:
                self.send(row, self._ready)
            else:
                self._response = fetch.respond()
                self.send(self._response)
            self._sent = True
        except Exception:
            pass  # the Fetch's own task meets it again, where it is told and logged

    def _read_appended(self) -> bool:
        """Whether the answer may go out now, with the batch as it was appended: it need not be read from the file."""
        assert self._appended is not None
        (log, end_offset, base_offset, records), self._appended = self._appended, None
        if log.log_end_offset != end_offset or log.offline or log.deleted:
            return self._fetch.read()
        return self._fetch.take(log, base_offset, records)

    def close(self) -> None:
        super().close()
        self._unwatch()
        self._fetch.release()

    async def _wait(self, max_wait_ms: int) -> FetchResponse | None:
        fetch = self._fetch
        try:
            with real_time.move_on_after(max_wait_ms / 1000):
                while not fetch.ready:
                    await self._event.wait()
                    if self._response is None and not self._sent:
                        self._unwatch()
                        if not fetch.read():
                            self._watch()
            if self._sent:
                return None
            if self._response is not None:
                return self._response
            if not fetch.ready:  # its time is over: whatever is there now
                fetch.read()
            return fetch.respond()
        except BaseException:
            if not self._sent:
                fetch.release()
            raise
        finally:
            self._unwatch()
