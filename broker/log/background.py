"""The tasks beside requests: recovery, flushes, checkpoints, deletions, retention, compaction.

Each sleeps until its next deadline. An internal error in one does not end the process: it is logged with its traceback,
and the task goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import trio

from oncelog.broker.log.manager import LogManager
from oncelog.broker.log.retention import delete_old_segments
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.slices import in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import KafkaError

RESTART_DELAY_S = 1.0
"""Seconds after which a task goes on that failed with an internal error."""

LONGEST_SLEEP_S = 365 * 24 * 3600
"""Kafka's "never", 2**63-1 milliseconds, is too much for a timer."""

JITTER = 0.01
"""A timer fires up to this share of its interval late, so that timers do not all fire at once."""

_log = get_logger(__name__)


async def run_background(manager: LogManager, task_status: trio.TaskStatus[None]) -> None:
    """Run all of them until cancelled."""
    config = manager.config
    offsets = manager.offsets

    async def save_log_starts() -> None:
        offsets.save_log_starts()

    async with trio.open_nursery() as nursery:

        def every(interval_ms: int, work: Callable[[], Awaitable[None]], delay_ms: int = 0) -> None:
            nursery.start_soon(_every, manager, interval_ms, delay_ms, work)

        nursery.start_soon(_restart_after_internal_errors, manager, manager.recover)
        nursery.start_soon(_restart_after_internal_errors, manager, manager.flusher.run)
        nursery.start_soon(_restart_after_internal_errors, manager, manager.deletions.run)
        every(config.log_flush_offset_checkpoint_interval_ms, offsets.save_recovery_points)
        every(config.log_flush_start_offset_checkpoint_interval_ms, save_log_starts)
        every(config.replica_high_watermark_checkpoint_interval_ms, offsets.save_high_watermarks)
        every(config.producer_id_expiration_check_interval_ms, lambda: in_slices(_expire_producers(manager)))
        every(
            config.log_retention_check_interval_ms,
            lambda: in_slices(_delete_old_segments(manager)),
            config.log_initial_task_delay_ms,
        )
        if config.log_cleaner_enable:
            nursery.start_soon(_restart_after_internal_errors, manager, lambda: _compact(manager))
        task_status.started()


async def _restart_after_internal_errors(manager: LogManager, task: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await task()
            return
        except Exception:
            _report_internal_error(manager)
            await real_time.sleep(RESTART_DELAY_S)


async def _every(
    manager: LogManager, interval_ms: int, delay_ms: int, work: Callable[[], Awaitable[None]]
) -> None:
    """Do the work after ``delay_ms`` (0: after ``interval_ms``), and then every ``interval_ms``."""
    wait_ms = delay_ms or interval_ms
    while True:
        late = 1 + JITTER * manager.random.random()
        await manager.clock.pause(min(max(1, wait_ms) / 1000 * late, LONGEST_SLEEP_S))
        wait_ms = interval_ms
        try:
            with manager.background.running("periodic work on logs"):
                await work()
        except OSError as error:
            # Only a checkpoint raises this. Its old content is still there, and the next round writes it again.
            about = {"path": error.filename or manager.data_dir}
            manager.lines.write(_log.error, "checkpoint not written", about, error=error)
        except Exception:
            _report_internal_error(manager)


async def _compact(manager: LogManager) -> None:
    while not any(log.config.compact for log in manager.logs.values()):
        await manager.clock.pause(manager.config.log_cleaner_backoff_ms / 1000)
    from oncelog.broker.log.cleaner.cleaner import (
        Cleaner,  # most brokers never need it, so it must not delay their start
    )

    await Cleaner(manager).run()


def _report_internal_error(manager: LogManager) -> None:
    _log.exception("background work on logs failed")
    manager.on_internal_error()


def _expire_producers(manager: LogManager) -> Iterator[None]:
    for log in manager.usable_logs():
        for producer_id in log.remove_expired_producers(manager.clock.now_ms()):
            if producer_id is not None:
                manager.background.timer_event(
                    "producer expired", producer_id=producer_id, topic=log.topic, partition=log.partition
                )
            yield
        yield


def _delete_old_segments(manager: LogManager) -> Iterator[None]:
    """Apply retention to all partitions. Those not used since the start are opened if they have any records."""
    for topic, partition in manager.unopened():
        try:
            if manager.size_of(topic, partition):
                manager.get(topic, partition)
        except OSError as error:
            _log.error("partition not looked at", topic=topic, partition=partition, error=str(error))
        except KafkaError as error:
            _log.debug("partition not opened", topic=topic, partition=partition, error=str(error))
        yield
    for log in manager.usable_logs():
        try:
            count = delete_old_segments(log, manager.clock.now_ms())
            if count:
                manager.background.timer_event(
                    "segments deleted", topic=log.topic, partition=log.partition, count=count
                )
        except OSError as error:
            log.fail(error)
        yield
