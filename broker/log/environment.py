"""`LogEnvironment`: what the partition logs of a broker share. `WaiterSet`: who waits on a log."""

from __future__ import annotations

from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import TYPE_CHECKING, Any, Protocol

import trio

from oncelog.broker.log.time_gaps import TimeGaps
from oncelog.broker.logging.line_limiter import LineLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem

PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of ``producer.id.expiration.ms``: how long a partition remembers a producer that writes
nothing."""


class LogFlusher(Protocol):
    """Brings logs to the disk: what a log asks of `oncelog.broker.log.flusher`."""

    async def flush(self, log: PartitionLog, up_to: int) -> None:
        """Wait until the log is on the disk up to the offset. Raises KafkaError (KAFKA_STORAGE_ERROR)."""

    def due(self, log: PartitionLog) -> None:
        """The log has as many unflushed bytes as it may have, or has rolled. Must not wait."""


class LogWaiter(Protocol):
    """Somebody who waits for a partition to change, as a delayed fetch does."""

    def notify(self, log: PartitionLog) -> None:
        """The log's high watermark or last stable offset has moved, or the log was truncated or deleted, or went
        offline. In `PartitionLog.end_waiters`: it has grown, or was flushed. Must not raise."""
        ...


SHORTAGES = {
    ENOSPC: "disk full",
    EDQUOT: "disk quota used up",
    EMFILE: "out of file descriptors",
    ENFILE: "out of file descriptors",
    ENOMEM: "out of memory",
}
"""Errors for want of disk space, descriptors or memory, and their names. They say nothing about the log's content."""


def shortage_of(error: BaseException) -> str | None:
    """The name of the shortage that the error tells of, which may be over at the next try; None where it is another."""
    return SHORTAGES.get(error.errno or 0) if isinstance(error, OSError) else None


LONG_VALIDATIONS_MAX = 4
"""Batches whose records are decompressed and checked slowly at the same time; others wait for their turn."""

LONG_SEARCHES_MAX = 4
"""Searches by time at the same time, each of which may need the memory of a decompressed batch; others wait."""


class LogEnvironment:
    """The parts of the broker that a partition log uses."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        random: Random,
        *,
        flusher: LogFlusher,
        save_log_start: Callable[[PartitionLog], None],
        lower_checkpoints: Callable[[PartitionLog, int, int | None], None],
        schedule_delete: Callable[[Sequence[str]], None],
        on_offline: Callable[[str, int], None] = lambda topic, partition: None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        has_fast_readers: bool = True,
    ) -> None:
        """``save_log_start`` makes a log's start offset durable before it returns, or raises OSError;
        ``lower_checkpoints`` is `PartitionOffsets.lower`; ``schedule_delete`` removes files some time later (they
        end in ``.deleted``); ``on_offline`` is called when a log goes offline; ``has_fast_readers`` is
        `ValidationRules.fast_readers`."""
        self.files = files
        self.clock = clock
        self.lines = LineLimiter(clock)
        """For what is logged each time that a log is used."""
        self.long_validations = trio.Semaphore(LONG_VALIDATIONS_MAX)
        """Taken by each validation that takes long."""
        self.searches = trio.Semaphore(LONG_SEARCHES_MAX)
        """Taken by each search by time."""
        self.random = random
        self.flusher = flusher
        self.save_log_start = save_log_start
        self.lower_checkpoints = lower_checkpoints
        self.schedule_delete = schedule_delete
        self.on_offline = on_offline
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.has_fast_readers = has_fast_readers
        self.time_gaps = TimeGaps()
        """While the data lay in a snapshot, it did not age."""


class WaiterSet(dict[Any, None]):
    """The waiters on one log. They are notified in the order in which they came."""

    __slots__ = ()

    def add(self, waiter: LogWaiter) -> None:
        self[waiter] = None

    def discard(self, waiter: LogWaiter) -> None:
        self.pop(waiter, None)

    def notify(self, log: PartitionLog) -> None:
        for waiter in tuple(self):
            waiter.notify(log)
