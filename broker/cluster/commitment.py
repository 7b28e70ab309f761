"""Waits until records are committed: every replica in the ISR has them, and they are as durable as ``flush.messages``
demands. The high watermark says so.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.cluster.cluster import LeaderPartition
    from oncelog.broker.log.partition_log import PartitionLog


class _Moved:
    """Notices each change of a log."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self, log: PartitionLog) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()


async def wait_committed(leader: LeaderPartition, up_to: int, timeout_s: float = inf) -> None:
    """Return when all records before the offset are committed.

    ``timeout_s`` (real time) limits the wait for other replicas; nothing limits a flush. Raises KafkaError:
    NOT_LEADER_OR_FOLLOWER as soon as another leader epoch begins, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    log = leader.log
    if not log.is_replicated:
        if log.high_watermark < up_to:
            await log.flush(up_to)
    else:
        await _wait_replicated(leader, up_to, timeout_s)
    log.check_alive()
    if not leader.is_current:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if log.high_watermark < up_to:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


async def _wait_replicated(leader: LeaderPartition, up_to: int, timeout_s: float) -> None:
    log, moved = leader.log, _Moved()
    log.waiters.add(moved)
    try:
        with real_time.move_on_after(timeout_s):
            while leader.is_current and log.high_watermark < up_to and not (log.offline or log.deleted):
                await moved.wait()
    finally:
        log.waiters.discard(moved)
