"""Compaction: which log, when, and how far."""

from __future__ import annotations

import trio

from tests.harness.compacted_logs import COMPACT, DAY_MS, clean, fill, keyed, read_all, shown, without_cleaner
from tests.harness.log_manager import DATA, START_MS, LogManagerHarness, run


def test_when_a_log_is_due() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.6"})
        async with harness.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", bytes(1000))
            assert not await clean(manager)  # all of it is active
            log.roll()
            assert await clean(manager)
            keyed(log, b"b", bytes(1000))
            log.roll()
            assert not await clean(manager)  # half is dirty
            keyed(log, b"c", bytes(1000))
            log.roll()
            assert await clean(manager)

    run(main)


def test_min_and_max_compaction_lag() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic(
            "t",
            overrides={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1",
                "min.compaction.lag.ms": "10000",
                "max.compaction.lag.ms": "20000",
            },
        )
        async with harness.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1")
            log.roll()
            keyed(log, b"a", b"2", START_MS + 15_000)
            log.roll()
            assert not await clean(manager)
            await trio.sleep(21)
            assert await clean(manager)
            assert len(read_all(log)) == 2  # the second segment is too young to be looked at
            assert harness.sim.read_bytes(f"{DATA}/cleaner-offset-checkpoint") == b"0\n1\nt 0 1\n"
            await trio.sleep(15)
            assert await clean(manager)
            assert shown(log) == [(1, b"a", b"2")]

    run(main)


def test_compact_and_delete() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic(
            "t", overrides={**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
        )
        async with harness.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1", START_MS - DAY_MS + 60_000)
            log.roll()
            keyed(log, b"b", b"1")
            log.roll()
            assert await clean(manager)
            harness.clock.advance(DAY_MS / 1000)
            await trio.sleep(310)  # the second look, after log.retention.check.interval.ms
            assert log.log_start_offset == 2
            assert read_all(log) == []
            # The checkpoint is below the log start now, which is where the next cleaning begins.
            keyed(log, b"c", b"1")
            keyed(log, b"c", b"2")
            log.roll()
            assert await clean(manager)
            assert shown(log) == [(3, b"c", b"2")]

    run(main)


def test_the_background_compacts() -> None:
    async def main() -> None:
        harness = LogManagerHarness(keys={"log.cleaner.backoff.ms": "5000"})
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            await trio.sleep(1)
            log = fill(manager)
            keyed(log, b"active", b"1")
            await trio.sleep(3.9)
            assert len(read_all(log)) == 121
            await trio.sleep(0.2)
            assert len(read_all(log)) == 8

    run(main)
