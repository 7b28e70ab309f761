"""LogManager: what a start after an unclean stop does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count

import pytest
import trio

from oncelog.broker.log.read_ahead import READ_AHEAD_BYTES
from oncelog.broker.log.recovery.queue import RECOVER_AT_ONCE_BYTES
from oncelog.broker.seams.memory_files import MemoryFile
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import (
    CLEAN_MARK,
    DATA,
    OTHER_ID,
    LogManagerHarness,
    append,
    make_unclean,
    offsets_in,
    run,
)
from tests.sim.files import Fault, SimFileSystem

# --- unclean stops


def test_after_an_unclean_stop_partitions_are_recovered_in_the_background() -> None:
    harness = LogManagerHarness()
    harness.add_topic("big")
    harness.add_topic("small", topic_id=OTHER_ID)
    make_unclean(harness, big=2 * RECOVER_AT_ONCE_BYTES // 170, small=3)

    async def main() -> None:
        manager = harness.manager()
        with pytest.raises(KafkaError) as caught:
            manager.get("big", 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert manager.get("small", 0).log_end_offset == 3  # too little to wait for
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            await manager.recovered()
            log = manager.get("big", 0)
            assert len(offsets_in(log)) == log.log_end_offset == 2 * RECOVER_AT_ONCE_BYTES // 170
            assert log.recovery_point == 0
            await trio.sleep(61)
            assert log.recovery_point == log.log_end_offset
            nursery.cancel_scope.cancel()
        manager.stop()
        assert harness.sim.exists(CLEAN_MARK)
        assert harness.truncated == []

    run(main)


def test_a_stop_before_all_is_recovered_is_not_clean_and_loses_nothing() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    harness.add_topic("u", topic_id=OTHER_ID)
    make_unclean(harness, t=3, u=2)

    async def main() -> None:
        manager = harness.manager()
        manager.get("t", 0)
        manager.stop()
        assert not harness.sim.exists(CLEAN_MARK)
        manager = harness.manager()
        assert manager.get("t", 0).log_end_offset == 3
        assert manager.get("u", 0).log_end_offset == 2
        manager.stop()
        assert harness.sim.exists(CLEAN_MARK)

    run(main)


def test_a_partition_is_deleted_while_it_is_recovered() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    make_unclean(harness, t=2 * RECOVER_AT_ONCE_BYTES // 170)

    async def main() -> None:
        async with harness.running() as manager:
            with pytest.raises(KafkaError):
                manager.get("t", 0)
            del harness.topics["t"]
            manager.delete("t", 0)
            harness.add_topic("t", topic_id=OTHER_ID)
            assert append(manager.get("t", 0)) == 1
            await manager.recovered()
            assert manager.get("t", 0).log_end_offset == 1
            await trio.sleep(100)
        async with harness.running() as manager:
            assert offsets_in(manager.get("t", 0)) == [0]

    run(main)


def test_partitions_that_are_asked_for_are_recovered_first_then_those_written_last() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t", 6)

    async def make() -> None:
        manager = harness.manager()
        for partition in (3, 1, 5, 0, 2, 4):
            while manager.get("t", partition).size < 4 * RECOVER_AT_ONCE_BYTES:
                append(manager.get("t", partition), bytes(1000))
            harness.clock.advance(1)
        harness.sim.crash("process")

    run(make)

    async def main() -> None:
        manager = harness.manager()
        with pytest.raises(KafkaError):
            manager.get("t", 5)
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            await manager.recovered()
            nursery.cancel_scope.cancel()
        assert [partition for _, partition in manager.logs] == [5, 4, 2, 0, 1, 3]
        manager.stop()

    run(main)


def test_lost_records_are_reported_before_the_log_is_served() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t", 3)

    async def main() -> None:
        manager = harness.manager()
        for partition in range(3):
            for _ in range(3):
                append(manager.get("t", partition))
        await manager.offsets.save_high_watermarks()
        harness.sim.crash("process")
        # Partition 0 is torn; partition 1 has lost its end without a trace but the high watermark that was seen.
        size = harness.sim.size(f"{DATA}/t-0/{0:020d}.log")
        harness.sim.open(f"{DATA}/t-0/{0:020d}.log").truncate(size - 1)
        harness.sim.open(f"{DATA}/t-1/{0:020d}.log").truncate(size // 3)
        manager = harness.manager()
        assert [manager.get("t", partition).log_end_offset for partition in range(3)] == [2, 1, 3]
        assert harness.truncated == [("t", 0, 2), ("t", 1, 1)]
        manager.stop()

    run(main)


def test_a_partition_that_cannot_be_read_does_not_take_the_others_with_it() -> None:
    for clean in (True, False):
        harness = LogManagerHarness()
        harness.add_topic("t", 3)

        async def main(harness: LogManagerHarness = harness, clean: bool = clean) -> None:
            async with harness.running() as manager:
                for partition in range(3):
                    append(manager.get("t", partition))
            if not clean:
                harness.sim.remove(CLEAN_MARK)
            harness.sim.faults.append(Fault("open", errno.EIO, lambda path: "t-1/" in path))
            manager = harness.manager()
            async with trio.open_nursery() as nursery:
                await nursery.start(manager.run)
                await manager.recovered()
                for _ in range(2):
                    with pytest.raises(KafkaError) as caught:
                        manager.get("t", 1)
                    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert manager.get("t", 0).log_end_offset == manager.get("t", 2).log_end_offset == 1
                nursery.cancel_scope.cancel()
            manager.stop()
            assert not harness.sim.exists(CLEAN_MARK)
            harness.sim.faults.clear()
            assert harness.manager().get("t", 1).log_end_offset == 1

        run(main)


def leave_no_descriptor(harness: LogManagerHarness, after: int) -> None:
    """So many more files can be opened or read, and then none."""
    uses = count()
    read_whole = ("checkpoint", "metadata", "snapshot")
    harness.sim.faults += [
        Fault("open", errno.EMFILE, lambda path: next(uses) >= after),
        Fault("read", errno.EMFILE, lambda path: path.endswith(read_whole) and next(uses) >= after),
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_a_shortage_at_the_first_use_of_a_partition_breaks_nothing(clean: bool) -> None:
    """Whichever of its files is the first that no descriptor is left for, and for how many uses."""

    async def open_with(descriptors: int) -> bool:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for sequence in range(3):
                append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
                log.roll()
            append(log, producer_id=7, producer_epoch=0, base_sequence=3)
        if not clean:
            harness.sim.remove(CLEAN_MARK)
        manager = harness.manager()
        was_short = False
        for _ in range(2):
            leave_no_descriptor(harness, descriptors)
            code = ErrorCode.NONE
            try:
                manager.get("t", 0)
            except KafkaError as error:
                code = error.code
                was_short = True
            assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            harness.sim.faults.clear()
        log = manager.get("t", 0)
        assert offsets_in(log) == [0, 1, 2, 3]
        assert append(log, producer_id=7, producer_epoch=0, base_sequence=4) == 5
        manager.stop()
        assert harness.sim.exists(CLEAN_MARK)
        assert harness.sim.open_files == 0
        return was_short

    async def main() -> None:
        descriptors = 0
        while await open_with(descriptors):
            descriptors += 1
        assert descriptors > 3

    run(main)


def test_recovery_waits_for_descriptors_and_recovers_the_others_meanwhile() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t", 2)

    async def main() -> None:
        manager = harness.manager()
        for partition in range(2):
            append(manager.get("t", partition))
        harness.sim.crash("process")
        size = harness.sim.size(f"{DATA}/t-1/{0:020d}.log")
        harness.sim.open(f"{DATA}/t-1/{0:020d}.log").truncate(size - 1)
        async with harness.running() as manager:
            harness.sim.faults.append(Fault("sync_dir", errno.EMFILE, lambda path: path.endswith("t-1")))
            await trio.sleep(60)
            assert list(manager.logs) == [("t", 0)]
            with pytest.raises(KafkaError) as caught:
                manager.get("t", 1)
            assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            harness.sim.faults.clear()
            await manager.recovered()
            assert manager.get("t", 1).log_end_offset == 0
            assert harness.truncated == [("t", 1, 0)]  # though it was cut at a try before the last
        assert harness.sim.exists(CLEAN_MARK)

    run(main)


@pytest.mark.parametrize("lost", [None, ".index", "recovery point"])
def test_what_is_cold_is_read_in_threads(lost: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no other request waits for the disk meanwhile; apart from a few headers, by which indexes are checked."""
    harness = LogManagerHarness()
    harness.add_topic("t")
    batches = 2 * READ_AHEAD_BYTES // 30_000

    async def make() -> None:
        manager = harness.manager()
        log = manager.get("t", 0)
        for sequence in range(batches):
            append(log, bytes(30_000), producer_id=7, producer_epoch=0, base_sequence=sequence)
            if sequence == batches * 3 // 4:
                await log.flush(log.log_end_offset)
                await manager.offsets.save_recovery_points()
        harness.sim.crash("process")

    run(make)
    if lost == ".index":
        harness.sim.remove(f"{DATA}/t-0/{0:020d}.index")
    if lost == "recovery point":
        harness.sim.remove(f"{DATA}/recovery-point-offset-checkpoint")

    warm: list[range] = []
    in_thread = False
    waited_for = 0
    pread, offload = MemoryFile.pread, SimFileSystem.offload

    def spy(file: MemoryFile, size: int, offset: int) -> bytes:
        nonlocal waited_for
        if in_thread:
            warm.append(range(offset, offset + size))
        elif file.path.endswith(".log") and not all(
            any(at in part for part in warm) for at in (offset, min(offset + size, file.size()) - 1)
        ):
            waited_for += 1
        return pread(file, size, offset)

    async def in_a_thread(files: SimFileSystem, call: Callable[[], object]) -> object:
        def called() -> object:
            nonlocal in_thread
            in_thread = True
            try:
                return call()
            finally:
                in_thread = False

        return await offload(files, called)

    monkeypatch.setattr(MemoryFile, "pread", spy)
    monkeypatch.setattr(SimFileSystem, "offload", in_a_thread)

    async def main() -> None:
        harness.sim.is_cold = lambda path: True
        harness.sim.latency_s = 1
        async with harness.running() as manager:
            while not manager.is_recovered:
                with pytest.raises(KafkaError) as caught:
                    manager.get("t", 0)
                assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                await trio.sleep(0.3)
            log = manager.get("t", 0)
            assert log.log_end_offset == batches
            assert log.producers.producers[7].last_sequence == batches - 1
            assert waited_for <= 8
        assert harness.sim.held == 0

    run(main)


def test_a_partition_is_deleted_while_it_is_read_ahead() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    make_unclean(harness, t=2 * RECOVER_AT_ONCE_BYTES // 170)

    async def main() -> None:
        harness.sim.is_cold = lambda path: True
        harness.sim.latency_s = 1
        async with harness.running() as manager:
            await trio.sleep(0.5)
            assert harness.sim.held == 1
            del harness.topics["t"]
            manager.delete("t", 0)
            await manager.recovered()
            await trio.sleep(100)
            assert not manager.logs
        assert harness.sim.held == harness.sim.open_files == 0

    run(main)
