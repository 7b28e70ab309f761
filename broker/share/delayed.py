"""`DelayedShareFetch`: waits until the member can acquire enough records from the partitions of a ShareFetch.

It is woken by appends, and by releases and ends of locks. A share partition that was loaded completes it at once, if
that is enough. So a member's first response has what was loaded first, and the next one the rest, as in Kafka
(``SharePartitionManager.processShareFetch``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.broker.share.reading import NotCached

if TYPE_CHECKING:
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.share.fetch import ShareFetch
    from oncelog.broker.share.partition import SharePartition


class DelayedShareFetch:
    """Waits for ``fetch``."""

    __slots__ = ("_event", "_fetch", "_files", "_partitions")

    def __init__(self, fetch: ShareFetch, files: FileSystem) -> None:
        self._fetch = fetch
        self._files = files
        self._event = trio.Event()
        self._partitions: list[SharePartition] = []

    def wake(self) -> None:
        """Records may have become available."""
        self._event.set()

    def note_loaded(self, partition: SharePartition) -> None:
        """A share partition was loaded, or cannot be. Acquire records before the next one is loaded."""
        try:
            if self._fetch.note_loaded(partition) and self._fetch.try_complete():
                self._event.set()
        except NotCached as cold:
            cold.range.release()
            self._event.set()

    def notify(self, log: PartitionLog) -> None:
        """A log grew or changed otherwise."""
        self._event.set()

    async def wait(self, max_wait_ms: int) -> None:
        """Wait until the response is ready, or for ``max_wait_ms`` of real time, since the client waits in it."""
        self._watch()
        try:
            with real_time.move_on_after(max_wait_ms / 1000):
                while True:
                    # First once more: something may have changed before it was watched.
                    if await self.try_complete():
                        return
                    await self._event.wait()
                    self._event = trio.Event()
        finally:
            self._unwatch()
        await self.try_complete(force=True)

    async def try_complete(self, *, force: bool = False) -> bool:
        """Do as `ShareFetch.try_complete`; read the disk in a thread first if the bytes are not cached."""
        try:
            return self._fetch.try_complete(force=force)
        except NotCached as cold:
            try:
                await self._files.offload(cold.range.read)
            except OSError:
                pass  # the read that follows meets it again
            finally:
                cold.range.release()
        return self._fetch.try_complete(force=force, may_block=True)

    def _watch(self) -> None:
        self._partitions = list(self._fetch.partitions.values())
        for partition in self._partitions:
            partition.waiters[self] = None
            partition.leader.log.waiters.add(self)

    def _unwatch(self) -> None:
        for partition in self._partitions:
            partition.waiters.pop(self, None)
            partition.leader.log.waiters.discard(self)
