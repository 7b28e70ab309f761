"""Compaction: crashes, errors of the disk, and what else happens to a log meanwhile."""

from __future__ import annotations

import errno
from itertools import count
from typing import Literal

import pytest
import trio

from oncelog.broker.log.cleaner.cleaner import Cleaner
from oncelog.broker.seams.memory_files import Operation
from tests.harness.compacted_logs import COMPACT, clean, fill, keyed, read_all, shown, without_cleaner
from tests.harness.log_manager import DATA, LogManagerHarness, append, dies, run
from tests.sim.files import Fault


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_every_step_of_a_cleaning(kind: Literal["process", "power"]) -> None:
    async def prepare(harness: LogManagerHarness) -> None:
        async with harness.running() as manager:
            log = fill(manager, batches=8)
            keyed(log, b"active", b"1")

    async def cleaning(harness: LogManagerHarness) -> None:
        manager = harness.manager()
        manager.get("t", 0)
        await clean(manager)

    async def check(harness: LogManagerHarness) -> None:
        async with harness.running() as manager:
            log = manager.get("t", 0)
            assert log.log_end_offset == 25
            latest = {record.key: record for record in read_all(log)}
            assert {key: record.offset for key, record in latest.items() if key} == expected
            offsets = [record.offset for record in read_all(log)]
            assert offsets == sorted(set(offsets))
            while await clean(manager):
                pass
            assert shown(log) == sorted((record.offset, key, record.value) for key, record in latest.items())
            await trio.sleep(61)
            names = harness.sim.listdir(f"{DATA}/t-0")
            assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names), names
        assert harness.truncated == []

    expected = {b"key-%d" % (number % 7): 16 + number for number in range(1, 8)} | {b"active": 24}

    def crash_at(step: int, seed: int) -> bool:
        harness = without_cleaner(seed)
        harness.add_topic("t", overrides=COMPACT)
        run(lambda: prepare(harness))
        harness.sim.crash_at = harness.sim.steps + step
        died = dies(lambda: run(lambda: cleaning(harness)))
        harness.sim.crash(kind)
        run(lambda: check(harness))
        return died

    for round in range(3):
        assert next(step for step in count() if not crash_at(step, 1000 * round + step)) > 20


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "rename", "sync_dir"])
def test_disk_errors(operation: Operation, error: int) -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            log = fill(manager)
            keyed(log, b"active", b"1")
            await log.flush(log.log_end_offset)
            before = read_all(log)
            on_cleaned = operation in ("open", "write", "fsync")
            fault = Fault(operation, error, lambda path: not on_cleaned or ".cleaned" in path, times=1)
            harness.sim.faults.append(fault)
            assert not await clean(manager)
            swapping = not on_cleaned
            assert log.offline == (swapping or error == errno.EIO)
            if not log.offline:
                assert read_all(log) == before
                assert not any(".cleaned" in name for name in harness.sim.listdir(f"{DATA}/t-0"))
                assert await clean(manager)
                assert len(read_all(log)) == 8
        if operation != "rename":  # a half-done swap is the crash test's matter
            return
        harness.sim.faults.clear()
        async with harness.running() as manager:
            log = manager.get("t", 0)
            assert {record.key: record.offset for record in read_all(log)} == {
                record.key: record.offset for record in before
            }

    run(main)


@pytest.mark.parametrize("event", ["delete", "policy", "retention", "offline"])
def test_what_happens_to_a_log_while_it_is_cleaned(event: str) -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            log = fill(manager)
            keyed(log, b"active", b"1")
            harness.sim.latency_s = 1.0
            results = []

            async def cleaning() -> None:
                results.append(await clean(manager))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cleaning)
                await trio.sleep(0.5)  # in the fsync of the cleaned segment
                assert any(".cleaned" in name for name in harness.sim.listdir(f"{DATA}/t-0"))
                if event == "delete":
                    del harness.topics["t"]
                    manager.delete("t", 0)
                elif event == "policy":
                    harness.add_topic("t")
                    manager.update_config("t", harness.topics["t"].config)
                elif event == "retention":
                    log.delete_oldest(1, "test")
                else:
                    log.fail(OSError(errno.EIO, "test"))
            harness.sim.latency_s = 0
            assert results == [True]
            assert harness.sim.held == 0
            names = harness.sim.listdir(f"{DATA}/t-0") if event != "delete" else []
            assert not any(".cleaned" in name or ".swap" in name for name in names)
            if event in ("policy", "retention"):
                assert len(read_all(log)) == (121 if event == "policy" else 81)
            if event == "retention":
                assert await clean(manager)
                assert len(read_all(log)) == 8

    run(main)


def test_a_damaged_log_is_left_alone() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            log = fill(manager)
            first = next(log.segments[1].headers())[1]
            log.segments[1].file.pwrite(b"?", first.size - 2)  # in a value, where nothing but the CRC tells
            before = list(log.segments)
            cleaner = Cleaner(manager)
            assert await cleaner.clean_filthiest()
            assert log.segments == before
            assert not await cleaner.clean_filthiest()  # it is known by now
            assert not log.offline
            assert append(log) == 121

    run(main)


def test_others_have_their_turn_while_a_log_is_cleaned() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            fill(manager, batches=4000)
            turns = 0
            done = False

            async def other() -> None:
                nonlocal turns
                while not done:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                assert await clean(manager)
                done = True
            assert turns > 20

    run(main)


def test_reads_of_what_is_not_cached_happen_in_a_thread() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
            fill(manager)
            harness.sim.is_cold = lambda path: path.endswith(".log")
            offloaded = 0
            offload = harness.sim.offload

            async def counting(call):  # type: ignore[no-untyped-def]
                nonlocal offloaded
                offloaded += "pread" in repr(call)
                return await offload(call)

            harness.sim.offload = counting  # type: ignore[method-assign]
            assert await clean(manager)
            assert offloaded == 6  # three segments, read twice

    run(main)
