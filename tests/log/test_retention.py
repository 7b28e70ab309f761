"""Which segments go, and when: by age, by size, below the log start offset."""

from __future__ import annotations

import errno

import pytest
import trio

from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.log.manager import LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.retention import delete_old_segments
from oncelog.broker.log.time_gaps import TIME_GAPS_FILE, TimeGap, TimeGaps, parse_time_gaps
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import DATA, START_MS, LogManagerHarness, append, run
from tests.sim.files import Fault

HOUR_MS = 3_600_000
FIRST_MS = START_MS - 10 * HOUR_MS
"""The first segment's timestamp; the files are written at START_MS."""


def three_segments(harness: LogManagerHarness, manager: LogManager, *timestamps: int) -> PartitionLog:
    """Of one batch each; the last is the active one."""
    log = manager.get("t", 0)
    for at, timestamp in enumerate(timestamps or (FIRST_MS, FIRST_MS + HOUR_MS, FIRST_MS + 2 * HOUR_MS)):
        if at:
            log.roll()
        append(log, timestamp=timestamp)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def check(now_ms: int, expected: list[int], *timestamps: int, **config: str) -> None:
    """Retention at ``now_ms`` leaves segments with these base offsets."""
    overrides = {key.replace("_", "."): value for key, value in config.items()}

    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides=overrides)
        async with harness.running() as manager:
            log = three_segments(harness, manager, *timestamps)
            before = len(log.segments)
            assert delete_old_segments(log, now_ms) == len({0, 1, 2} - set(expected))
            assert bases(log) == expected
            assert log.log_start_offset == expected[0]
            assert log.log_end_offset == before == 3
            assert delete_old_segments(log, now_ms) == 0

    run(main)


def test_by_age() -> None:
    check(FIRST_MS + HOUR_MS, [0, 1, 2], retention_ms=str(HOUR_MS))
    check(FIRST_MS + HOUR_MS + 1, [1, 2], retention_ms=str(HOUR_MS))
    check(FIRST_MS + 2 * HOUR_MS + 1, [2], retention_ms=str(HOUR_MS))
    # All are expired: the active one goes too, once a new one has been made.
    check(FIRST_MS + 3 * HOUR_MS + 1, [3], retention_ms=str(HOUR_MS))
    check(FIRST_MS + 1000 * HOUR_MS, [0, 1, 2], retention_ms="-1")


def test_a_segment_that_is_young_keeps_those_after_it() -> None:
    old = FIRST_MS - 10 * HOUR_MS
    check(FIRST_MS, [1, 2], old, FIRST_MS, old, retention_ms=str(HOUR_MS))


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    check(START_MS + HOUR_MS - 60_000, [0, 1, 2], -1, -1, -1, retention_ms=str(HOUR_MS))
    check(START_MS + 2 * HOUR_MS, [3], -1, -1, -1, retention_ms=str(HOUR_MS))


def test_by_size() -> None:
    async def sizes() -> list[int]:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            return [segment.size for segment in three_segments(harness, manager).segments]

    each = run(sizes)[0]
    assert run(sizes) == [each] * 3
    check(START_MS, [0, 1, 2], retention_bytes=str(2 * each + 1), retention_ms="-1")
    check(START_MS, [1, 2], retention_bytes=str(2 * each), retention_ms="-1")
    check(START_MS, [2], retention_bytes=str(2 * each - 1 - each), retention_ms="-1")
    check(START_MS, [3], retention_bytes="0", retention_ms="-1")
    check(START_MS, [0, 1, 2], retention_bytes="-1", retention_ms="-1")


def test_policies() -> None:
    late = FIRST_MS + 100 * HOUR_MS
    check(late, [0, 1, 2], retention_ms="1", retention_bytes="0", cleanup_policy="compact")
    check(late, [0, 1, 2], retention_ms="1", retention_bytes="0", cleanup_policy="")
    check(late, [3], retention_ms="1", cleanup_policy="compact,delete")


@pytest.mark.parametrize("policy", ["delete", "compact", ""])
def test_below_the_log_start_offset(policy: str) -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides={"cleanup.policy": policy})
        async with harness.running() as manager:
            log = three_segments(harness, manager)
            log.delete_records(1)
            assert delete_old_segments(log, START_MS) == 1
            log.delete_records(3)
            assert delete_old_segments(log, START_MS) == 1
            assert bases(log) == [2]  # the active one stays
            assert log.log_start_offset == 3

    run(main)


def test_nothing_above_the_high_watermark_goes() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides={"flush.messages": "1", "retention.ms": "1"})
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            log.roll()
            append(log)
            assert log.high_watermark == 0
            assert delete_old_segments(log, START_MS + HOUR_MS) == 0
            await log.flush(2)
            assert delete_old_segments(log, START_MS + HOUR_MS) == 2

    run(main)


def test_the_background_applies_retention_to_unused_partitions_too() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        overrides = {
            "retention.ms": HOUR_MS,
            "file.delete.delay.ms": 5000,
            "message.timestamp.after.max.ms": 1 << 40,
        }
        harness.add_topic("t", 2, overrides={key: str(value) for key, value in overrides.items()})
        async with harness.running() as manager:
            three_segments(harness, manager, START_MS, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS)
            manager.get("t", 1)
        harness.clock.advance((2 * HOUR_MS + 1) / 1000)
        async with harness.running() as manager:
            await trio.sleep(29)  # log.initial.task.delay.ms
            assert not manager.logs
            await trio.sleep(2)
            assert list(manager.logs) == [("t", 0)]  # the other one is empty
            log = manager.get("t", 0)
            assert bases(log) == [2]
            names = [name for name in harness.sim.listdir(f"{DATA}/t-0") if name.endswith(".deleted")]
            assert f"{0:020d}.log.deleted" in names
            await trio.sleep(6)
            assert not any(name.endswith(".deleted") for name in harness.sim.listdir(f"{DATA}/t-0"))
            await trio.sleep(HOUR_MS / 1000 + 400)
            assert bases(log) == [3]

    run(main)


def test_a_full_disk_is_given_room() -> None:
    """There is none for the new segment that the last one needs to go; those before it go all the same."""

    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", overrides={"retention.ms": str(HOUR_MS)})
        async with harness.running() as manager:
            log = three_segments(harness, manager)
            harness.sim.faults.append(Fault("open", errno.ENOSPC, lambda path: f"{3:020d}" in path))
            assert delete_old_segments(log, START_MS) == 2
            assert bases(log) == [2]
            assert not log.offline
            assert delete_old_segments(log, START_MS) == 0
            harness.sim.faults.clear()
            assert delete_old_segments(log, START_MS) == 1
            assert bases(log) == [3]

    run(main)


def test_a_deletion_that_fails_takes_the_log_offline() -> None:
    async def main() -> None:
        harness = LogManagerHarness(keys={"log.retention.check.interval.ms": "1000"})
        harness.add_topic("t", overrides={"retention.ms": "1"})
        harness.add_topic("u", topic_id=bytes(16), overrides={"retention.ms": "1"})
        async with harness.running() as manager:
            log = three_segments(harness, manager)
            append(manager.get("u", 0))
            harness.sim.faults.append(Fault("rename", errno.EIO, lambda path: "t-0" in path))
            harness.clock.advance(10 * HOUR_MS / 1000)
            await trio.sleep(40)
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert bases(manager.get("u", 0)) == [1]
            harness.sim.faults.clear()

    run(main)


def test_time_in_a_snapshot_does_not_age() -> None:
    """The records' timestamps stay; retention counts as if the time in the snapshot had not passed."""

    async def main() -> None:
        harness = LogManagerHarness()
        any_time = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
        harness.add_topic("t", overrides={"retention.ms": str(HOUR_MS), **any_time})
        gaps = TimeGaps([TimeGap(FIRST_MS + HOUR_MS, 1000 * HOUR_MS)])
        harness.files.makedirs(DATA)
        harness.files.replace(f"{DATA}/{TIME_GAPS_FILE}", gaps.encode())
        harness.files.replace(f"{DATA}/meta.properties", b"version=1\nnode.id=1\ncluster.id=x\n")
        async with harness.running() as manager:
            after = FIRST_MS + 1002 * HOUR_MS
            log = three_segments(harness, manager, FIRST_MS, FIRST_MS + HOUR_MS, after)
            assert delete_old_segments(log, FIRST_MS + 1001 * HOUR_MS) == 0
            assert delete_old_segments(log, FIRST_MS + 1001 * HOUR_MS + 1) == 1
            assert delete_old_segments(log, FIRST_MS + 1002 * HOUR_MS + 1) == 1
            assert delete_old_segments(log, after + HOUR_MS) == 0
            assert delete_old_segments(log, after + HOUR_MS + 1) == 1

    run(main)


def test_time_gaps_that_cannot_be_read_refuse_the_start() -> None:
    """Else their records would be deleted as too old."""

    async def main() -> None:
        harness = LogManagerHarness()
        harness.files.makedirs(DATA)
        harness.files.replace(f"{DATA}/{TIME_GAPS_FILE}", b"0\n5 six\n")
        harness.files.replace(f"{DATA}/meta.properties", b"version=1\nnode.id=1\ncluster.id=x\n")
        with pytest.raises(DataDirectoryError, match=r"oncelog-time-gaps is malformed.*six"):
            async with harness.running():
                pass
        harness.files.replace(f"{DATA}/{TIME_GAPS_FILE}", b"0\n")
        async with harness.running():
            pass

    run(main)


def test_gaps_add_up() -> None:
    gaps = TimeGaps([TimeGap(100, 1000)]).and_then(TimeGap(1200, -50))
    assert [gaps.aged(timestamp) for timestamp in (-1, 100, 101, 1200, 1201)] == [949, 1050, 51, 1150, 1201]
    assert parse_time_gaps(gaps.encode(), "f").encode() == gaps.encode()
