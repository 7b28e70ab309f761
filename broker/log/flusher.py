"""When a log's bytes go to the disk: group commit for those who wait, and the background for the rest.

Kafka leaves most of this to the operating system; here a partition's recovery point also moves when half a gigabyte
or a minute have gone by, so that a start after a crash has little to check (docs/decisions/0005).
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

import trio

from oncelog.broker.logs import get_logger
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem

FLUSH_BYTES = 512 << 20
"""Unflushed bytes of one partition at which the background flushes it."""

FLUSH_INTERVAL_MS = 60_000
"""Milliseconds that a record may stay unflushed, where `flush.ms` does not say less."""

NEVER_DUE = 1 << 62
"""A number of unflushed bytes that is not reached: the log is due already."""

_log = get_logger(__name__)


class Flusher:
    """Flushes logs, each in a worker thread, one fsync at a time per log.

    A log that fails goes offline (`PartitionLog.fail`) and is never flushed again: after a failed fsync
    nobody knows what is on the disk, and a second one would say that all is well.
    """

    def __init__(self, files: FileSystem, clock: Clock, data_dir: str) -> None:
        self._files = files
        self._clock = clock
        self._data_dir = data_dir
        self._running: dict[PartitionLog, trio.Event] = {}
        self._deadlines: dict[PartitionLog, float] = {}
        # When to look at a log again: never later than its deadline. (time, tie-breaker, log)
        self._looks: list[tuple[float, int, PartitionLog]] = []
        self._next_look: dict[PartitionLog, float] = {}
        self._count = 0
        self._more = trio.Event()
        self._syncing_names: trio.Event | None = None
        self.new_names = False
        """Whether a partition's directory has been made (or removed) whose name may not be on the disk."""

    async def flush(self, log: PartitionLog, up_to: int) -> None:
        """Return when all below the offset ``up_to`` is on the disk.

        A flush that is running covers what was there when it began; whoever came later shares the next one.
        Raises KafkaError: KAFKA_STORAGE_ERROR, or UNKNOWN_TOPIC_OR_PARTITION where the log was deleted.
        """
        log.check_alive()
        while log.recovery_point < up_to:
            running = self._running.get(log)
            if running is not None:
                await running.wait()
            else:
                await self._flush_once(log)
            log.check_alive()

    async def _flush_once(self, log: PartitionLog) -> None:
        done = self._running[log] = trio.Event()
        try:
            await self._sync_new_names()
            work = log.prepare_flush()
            if work is not None:
                await self._files.offload(work.run)
                log.flushed(work)
        except OSError as error:
            if log.deleted:
                log.offline = True  # its directory went away under the flush; there is nothing to report
            log.fail(error)
        finally:
            del self._running[log]
            done.set()
            self._settle(log)

    async def _sync_new_names(self) -> None:
        """Before any log counts as flushed: its directory must be found again."""
        while self._syncing_names is not None:
            await self._syncing_names.wait()
        if self.new_names:
            self.new_names = False
            done = self._syncing_names = trio.Event()
            try:
                await self._files.offload(lambda: self._files.sync_dir(self._data_dir))
            except BaseException:
                self.new_names = True
                raise
            finally:
                self._syncing_names = None
                done.set()

    # --- the background

    def due(self, log: PartitionLog) -> None:
        """A log has unflushed bytes: the first, or as many as `FLUSH_BYTES`, or it has rolled."""
        if log not in self._deadlines and log.durability.due_bytes < FLUSH_BYTES:
            log.durability.due_bytes = FLUSH_BYTES
            self._enqueue(log, self._clock.monotonic() + min(log.config.flush_ms, FLUSH_INTERVAL_MS) / 1000)
        else:
            log.durability.due_bytes = NEVER_DUE
            self._enqueue(log, self._clock.monotonic())

    def reconsider(self, log: PartitionLog) -> None:
        """`flush.ms` of a log has changed."""
        if log in self._deadlines:
            sooner = self._clock.monotonic() + min(log.config.flush_ms, FLUSH_INTERVAL_MS) / 1000
            self._enqueue(log, min(self._deadlines[log], sooner))

    def forget(self, log: PartitionLog) -> None:
        """The log is gone."""
        self._deadlines.pop(log, None)

    def _enqueue(self, log: PartitionLog, deadline: float) -> None:
        self._deadlines[log] = deadline
        if deadline < self._next_look.get(log, inf):
            self._next_look[log] = deadline
            self._count += 1
            heappush(self._looks, (deadline, self._count, log))
            self._more.set()

    def _settle(self, log: PartitionLog) -> None:
        """After a flush: what came meanwhile gets its own deadline."""
        self._deadlines.pop(log, None)
        log.durability.due_bytes = 1
        if log.unflushed_bytes and not log.offline:
            self.due(log)

    async def run(self) -> None:
        """The background: sleeps until the next log is due."""
        looks = self._looks
        while True:
            self._more = trio.Event()
            if not looks:
                await self._more.wait()
            elif looks[0][0] > self._clock.monotonic():
                with self._clock.move_on_at(looks[0][0]):
                    await self._more.wait()
            else:
                time, _, log = heappop(looks)
                if self._next_look.get(log) == time:
                    del self._next_look[log]
                    await self._look_at(log)

    async def _look_at(self, log: PartitionLog) -> None:
        deadline = self._deadlines.get(log)
        if deadline is None or log.offline or log.deleted:
            return
        if deadline > self._clock.monotonic():
            self._enqueue(log, deadline)
            return
        del self._deadlines[log]
        await self._flush_quietly(log)

    async def settle(self, log: PartitionLog) -> None:
        """Bring what is left of ``log`` to the disk, after the flush that is running. Raises KafkaError as `flush`."""
        while (running := self._running.get(log)) is not None:
            await running.wait()
        await self._flush_once(log)

    async def _flush_quietly(self, log: PartitionLog) -> None:
        try:
            await self.flush(log, log.log_end_offset)
        except KafkaError as error:
            # `PartitionLog.fail` has said so; those who wait for it are told by their own call.
            _log.debug("not flushed", topic=log.topic, partition=log.partition, error=error)
