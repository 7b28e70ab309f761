"""Group commit, the background flush, and what a failed fsync does."""

from __future__ import annotations

import errno

import pytest
import trio

from oncelog.broker.log.flusher import FLUSH_INTERVAL_MS
from oncelog.broker.log.manager import LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import DATA, LogManagerHarness, append, run
from tests.sim.files import Fault

LOG_FILE = f"{DATA}/t-0/{0:020d}.log"


async def flush(log: PartitionLog) -> None:
    await log.flush(log.log_end_offset)


def fsyncs(harness: LogManagerHarness, path: str = LOG_FILE) -> int:
    return harness.sim.counts["fsync", path]


def test_one_fsync_serves_all_that_wait() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            await flush(log)
            before = fsyncs(harness)
            harness.sim.latency_s = 0.010
            done: list[int] = []

            async def produce() -> None:
                end = append(log)
                await log.flush(end)
                assert log.recovery_point >= end
                done.append(end)

            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(produce)
                await trio.sleep(0.005)
                assert fsyncs(harness) == before + 1
                assert done == []
                for _ in range(50):
                    nursery.start_soon(produce)
            assert len(done) == 100
            assert fsyncs(harness) == before + 2  # the first 50 together; the others came while it ran
            harness.sim.latency_s = 0

    run(main)


def test_a_flush_does_not_cover_what_came_after_it_began() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            await flush(log)
            append(log)
            harness.sim.latency_s = 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flush, log)
                await trio.sleep(0.5)
                append(log)
            assert log.recovery_point == 2
            harness.sim.latency_s = 0
            await flush(log)
            assert log.recovery_point == 3

    run(main)


def test_what_is_on_the_disk_needs_no_fsync() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            await flush(log)
            before = fsyncs(harness)
            await flush(log)
            await log.flush(0)
            assert fsyncs(harness) == before

    run(main)


def test_a_cancelled_waiter_leaves_the_log_able_to_flush() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            harness.sim.latency_s = 1
            append(log)
            with trio.move_on_after(0.5):
                await flush(log)
            with trio.CancelScope() as scope:
                scope.cancel()
                append(log)
                await flush(log)
            harness.sim.latency_s = 0
            await flush(log)
            assert log.recovery_point == 2
            assert harness.sim.held == 0

    run(main)


def test_the_directory_of_a_new_partition_is_synced_before_its_first_flush() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", 2)
        async with harness.running() as manager:
            harness.sim.latency_s = 1
            before = harness.sim.counts["sync_dir", DATA]
            logs = [manager.get("t", 0), manager.get("t", 1)]
            async with trio.open_nursery() as nursery:
                for log in logs:
                    append(log)
                    nursery.start_soon(flush, log)
            assert harness.sim.counts["sync_dir", DATA] == before + 1
            harness.sim.latency_s = 0

    run(main)


@pytest.mark.parametrize("kind", ["fsync", "sync_dir"])
def test_a_failed_fsync_takes_the_log_offline_and_is_not_tried_again(kind: str) -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        harness.add_topic("other", topic_id=bytes(16))
        manager = harness.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            log = manager.get("t", 0)
            append(log)
            harness.sim.faults.append(Fault(kind, errno.EIO, lambda path: "t-0" in path, times=1))  # type: ignore[arg-type]
            for _ in range(2):
                with pytest.raises(KafkaError) as caught:
                    await flush(log)
                assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert fsyncs(harness) == 1
            assert log.offline
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            append(manager.get("other", 0))
            await flush(manager.get("other", 0))
            nursery.cancel_scope.cancel()
        manager.stop()
        assert not harness.sim.exists(f"{DATA}/.kafka_cleanshutdown")

    run(main)


def test_all_waiters_hear_of_a_failed_fsync() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            harness.sim.latency_s = 1
            harness.sim.faults.append(Fault("fsync", errno.EIO, times=1))
            codes = []

            async def wait() -> None:
                try:
                    await log.flush(append(log))
                except KafkaError as error:
                    codes.append(error.code)

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(wait)
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 5

    run(main)


async def recovery_point_after(manager: LogManager, seconds: float) -> int:
    await trio.sleep(seconds)
    return manager.get("t", 0).recovery_point


def test_the_background_flushes_within_a_minute() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            assert await recovery_point_after(manager, FLUSH_INTERVAL_MS / 1000 - 1) == 0
            append(log)
            assert await recovery_point_after(manager, 2) == 2
            append(log)
            assert await recovery_point_after(manager, FLUSH_INTERVAL_MS / 1000 - 2) == 2
            assert await recovery_point_after(manager, 4) == 3
            before = fsyncs(harness)
            await trio.sleep(1000)
            assert fsyncs(harness) == before  # nothing new, nothing to do

    run(main)


def test_flush_ms() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides={"flush.ms": "5000"})
        async with harness.running() as manager:
            append(manager.get("t", 0))
            assert await recovery_point_after(manager, 4.9) == 0
            assert await recovery_point_after(manager, 0.2) == 1
            harness.add_topic("t")
            manager.update_config("t", harness.topics["t"].config)
            append(manager.get("t", 0))
            assert await recovery_point_after(manager, 10) == 1
            harness.add_topic("t", overrides={"flush.ms": "1000"})
            manager.update_config("t", harness.topics["t"].config)
            assert await recovery_point_after(manager, 1.1) == 2

    run(main)


def test_the_background_flushes_after_so_many_bytes() -> None:
    flush_bytes = 10 << 20

    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            manager.flusher.flush_bytes = flush_bytes
            log = manager.get("t", 0)
            value = bytes(1_000_000)
            while log.unflushed_bytes < flush_bytes - len(value) - 1000:
                append(log, value)
            assert await recovery_point_after(manager, 0.1) == 0
            end = append(log, value)
            while log.unflushed_bytes < flush_bytes:
                end = append(log, value)
            assert await recovery_point_after(manager, 0.1) == end

    run(main)


def test_a_roll_flushes_the_old_segment() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides={"segment.bytes": str(1 << 20)})
        async with harness.running() as manager:
            log = manager.get("t", 0)
            while len(log.segments) == 1:
                append(log, bytes(100_000))
            assert await recovery_point_after(manager, 0.1) >= log.active.base_offset

    run(main)


def test_a_log_that_is_deleted_while_it_is_flushed_is_no_error() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            harness.sim.latency_s = 1
            codes = []

            async def wait() -> None:
                try:
                    await flush(log)
                except KafkaError as error:
                    codes.append(error.code)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                nursery.start_soon(wait)
                await trio.sleep(0.5)
                manager.delete("t", 0)
                del harness.topics["t"]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
            assert harness.sim.held == 0
            harness.sim.latency_s = 0

    run(main)


def test_all_logs_are_flushed_when_the_background_ends() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", 3)
        manager = harness.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            logs = [manager.get("t", partition) for partition in range(3)]
            for log in logs:
                append(log)
            harness.sim.faults.append(Fault("fsync", errno.EIO, lambda path: "t-1" in path))
            harness.sim.latency_s = 1.0
            nursery.cancel_scope.cancel()
        assert [log.recovery_point for log in logs] == [1, 0, 1]
        assert [log.offline for log in logs] == [False, True, False]

    run(main)
