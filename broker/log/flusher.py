"""`Flusher`: brings logs to the disk, at once for requests that wait (group commit), later in the background.

Kafka leaves most of this to the operating system. Here a partition is also flushed after half a gigabyte or a
minute, so that a start after a crash has little to check
(docs/contributing/decisions/0005-background-flush-every-half-gigabyte.md).
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import trio

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.seams.clock import Clock
from oncelog.broker.seams.files import FileSystem
from oncelog.wire.errors import ErrorCode, KafkaError

FLUSH_BYTES = 512 << 20
"""Unflushed bytes of one partition at which the background flushes it."""

FLUSH_INTERVAL_MS = 60_000
"""Milliseconds that a record may stay unflushed; `flush.ms` may be less."""

NEVER_DUE = 1 << 62
"""A number of unflushed bytes that no log reaches: this log is due already and need not tell again."""

_log = get_logger(__name__)


class Flusher:
    """Flushes logs, each in a worker thread, one fsync at a time per log.

    A log whose flush fails goes offline (`PartitionLog.fail`) and is never flushed again: after a failed fsync
    nobody knows what is on the disk, and a second fsync would report success.
    """

    def __init__(self, files: FileSystem, clock: Clock, data_dir: str, background: BackgroundWork) -> None:
        self._files = files
        self._background = background
        self._clock = clock
        self._data_dir = data_dir
        self._running: dict[PartitionLog, trio.Event] = {}
        self._deadlines: dict[PartitionLog, float] = {}
        # (time, tie-breaker, log): when to look at a log again, never later than its deadline.
        self._wakeups: list[tuple[float, int, PartitionLog]] = []
        self._next_wakeup: dict[PartitionLog, float] = {}
        self._count = 0
        self._more = trio.Event()
        self._syncing_names: trio.Event | None = None
        self.flush_bytes = FLUSH_BYTES
        self.new_names = False
        """Whether a partition's directory was created or removed and the disk may not have that yet."""

    async def flush(self, log: PartitionLog, up_to: int) -> None:
        """Return when all below the offset ``up_to`` is on the disk. A running flush covers what was there when
        it began; all who come later share the next one.
        Raises KafkaError: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION if the log was deleted, or
        NOT_LEADER_OR_FOLLOWER if it was truncated meanwhile, as only a follower's log is.
        """
        log.check_alive()
        while log.recovery_point < up_to:
            if up_to > log.log_end_offset:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Offset {up_to} was truncated")
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
                log.offline = True  # its directory was removed during the flush: no failure
            log.fail(error)
        finally:
            del self._running[log]
            done.set()
            self._flush_ended(log)

    async def _sync_new_names(self) -> None:
        """Sync the data directory: a log counts as flushed only if its directory can be found again."""
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
        """A log has reached its `Durability.due_bytes`, the first of them or `flush_bytes`, or it has rolled:
        plan its flush."""
        if log not in self._deadlines and log.durability.due_bytes < self.flush_bytes:
            log.durability.due_bytes = self.flush_bytes
            self._plan(log, self._clock.monotonic() + min(log.config.flush_ms, FLUSH_INTERVAL_MS) / 1000)
        else:
            log.durability.due_bytes = NEVER_DUE
            self._plan(log, self._clock.monotonic())

    def reschedule(self, log: PartitionLog) -> None:
        """`flush.ms` of a log may have changed: plan its flush anew."""
        if log in self._deadlines:
            sooner = self._clock.monotonic() + min(log.config.flush_ms, FLUSH_INTERVAL_MS) / 1000
            self._plan(log, min(self._deadlines[log], sooner))

    def forget(self, log: PartitionLog) -> None:
        """Drop the plan for a log that was deleted."""
        self._deadlines.pop(log, None)

    def _plan(self, log: PartitionLog, deadline: float) -> None:
        self._deadlines[log] = deadline
        if deadline < self._next_wakeup.get(log, inf):
            self._next_wakeup[log] = deadline
            self._count += 1
            heappush(self._wakeups, (deadline, self._count, log))
            self._more.set()

    def _flush_ended(self, log: PartitionLog) -> None:
        """After a flush: plan the next one if more was appended meanwhile."""
        self._deadlines.pop(log, None)
        log.durability.due_bytes = 1
        if log.unflushed_bytes and not log.offline:
            self.due(log)

    async def run(self) -> None:
        """Flush each log when it is due, until cancelled."""
        wakeups = self._wakeups
        while True:
            self._more = trio.Event()
            if not wakeups:
                await self._more.wait()
            elif wakeups[0][0] > self._clock.monotonic():
                with self._clock.move_on_at(wakeups[0][0]):
                    await self._more.wait()
            else:
                time, _, log = heappop(wakeups)
                if self._next_wakeup.get(log) == time:
                    del self._next_wakeup[log]
                    with self._background.running("flush"):
                        await self._flush_if_due(log)

    async def _flush_if_due(self, log: PartitionLog) -> None:
        deadline = self._deadlines.get(log)
        if deadline is None or log.offline or log.deleted:
            return
        if deadline > self._clock.monotonic():
            self._plan(log, deadline)
            return
        del self._deadlines[log]
        await self._flush_quietly(log)

    async def flush_rest(self, log: PartitionLog) -> None:
        """Flush the rest of ``log`` after the flush that is running. Raises KafkaError as `flush`."""
        while (running := self._running.get(log)) is not None:
            await running.wait()
        await self._flush_once(log)

    async def _flush_quietly(self, log: PartitionLog) -> None:
        try:
            await self.flush(log, log.log_end_offset)
        except KafkaError as error:
            # `PartitionLog.fail` has logged it; those who wait get it from their own call.
            _log.debug("not flushed", topic=log.topic, partition=log.partition, error=error)
