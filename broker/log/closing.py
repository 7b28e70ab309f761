"""The clean stop of all logs: they are flushed, many at the same time, and closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import trio

from oncelog.broker.log.flusher import Flusher
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.logging.logs import get_logger
from oncelog.wire.errors import KafkaError

FLUSHED_AT_ONCE = 16
"""Partitions that a stop flushes at the same time: enough for all threads, and few descriptors."""

_log = get_logger(__name__)


async def flush_all(logs: Iterator[PartitionLog], count: int, flusher: Flusher) -> None:
    """Flush ``count`` logs and their derived files, so that `close_all` has nothing to write."""

    async def flush_one_by_one() -> None:
        for log in logs:
            await _flush(log, flusher)

    async with trio.open_nursery() as nursery:
        for _ in range(min(FLUSHED_AT_ONCE, count)):
            nursery.start_soon(flush_one_by_one)


async def _flush(log: PartitionLog, flusher: Flusher) -> None:
    log.is_closing = True
    try:
        await flusher.flush_rest(log)
    except KafkaError as error:  # `PartitionLog.fail` has logged it, or `close` will fail again
        _log.debug("not flushed", topic=log.topic, partition=log.partition, error=str(error))


def close_all(logs: Iterable[PartitionLog]) -> bool:
    """Close the logs. Returns whether each of them could be written to the disk. It blocks."""
    clean = True
    for log in logs:
        try:
            log.close()
        except OSError as error:
            _log.error("log not closed", topic=log.topic, partition=log.partition, error=str(error))
            clean = False
        clean = clean and not log.offline
    return clean
