"""Start, stop, and the life of partitions."""

from __future__ import annotations

import errno
from itertools import count

import pytest
import trio

from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.log.manager import LogManager
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import (
    CLEAN_MARK,
    DATA,
    OTHER_ID,
    Crash,
    LogManagerHarness,
    append,
    batch,
    dies,
    make_unclean,
    offsets_in,
    run,
)
from tests.sim.files import Fault

# --- start and stop


def test_a_clean_stop_is_marked_last_and_the_mark_goes_first() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            assert not manager.was_clean
            assert not harness.sim.exists(CLEAN_MARK)
            append(manager.get("t", 0))
        assert harness.sim.read_bytes(CLEAN_MARK) == b'{"version":0,"brokerEpoch":-1}'
        assert harness.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
        assert harness.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
        harness.sim.crash("power")
        async with harness.running() as manager:
            assert manager.was_clean
            assert not harness.sim.exists(CLEAN_MARK)
            harness.sim.crash("power")  # the mark must not come back
            assert not harness.sim.exists(CLEAN_MARK)

    run(main)


def test_partitions_open_on_first_use() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", 20)
        async with harness.running() as manager:
            for partition in range(20):
                append(manager.get("t", partition))
        harness.sim.counts.clear()
        async with harness.running() as manager:
            assert len(manager.logs) == 0
            assert manager.get("t", 7).log_end_offset == 1
            opened = {path.split("/")[2] for operation, path in harness.sim.counts if "/t-" in path}
            assert opened == {"t-7"}
            assert manager.size_of("t", 7) == manager.size_of("t", 8) > 0
        # and what was not opened is not forgotten
        assert harness.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint").count(b"\n") == 22

    run(main)


def test_unknown_partitions() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    manager = harness.manager()
    for topic, partition in (("no", 0), ("t", 1), ("t", -1)):
        with pytest.raises(KafkaError) as caught:
            manager.get(topic, partition)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_process_at_a_time() -> None:
    harness = LogManagerHarness()
    manager = harness.manager()
    with pytest.raises(DataDirectoryError, match="another process"):
        harness.manager()
    manager.stop()
    harness.manager()


def test_a_start_that_gets_nowhere_leaves_a_clean_directory_clean() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    harness.manager().stop()
    manager = LogManager(DATA, harness.files, harness.clock, harness.random, harness.config)
    manager.start()
    manager.stop()
    assert harness.sim.exists(CLEAN_MARK)
    assert harness.manager().was_clean


def touched(harness: LogManagerHarness) -> dict[tuple[str, str], int]:
    """What has been done to the files of partitions so far, apart from reading."""
    return {
        call: times for call, times in harness.sim.counts.items() if "/t-" in call[1] and call[0] != "read"
    }


def test_a_stop_has_threads_bring_partitions_to_the_disk() -> None:
    """And but once: closing them, which keeps all others waiting, finds nothing left to write."""

    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t", 40)
        manager = harness.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            for partition in range(40):
                append(manager.get("t", partition), producer_id=7, producer_epoch=0, base_sequence=0)
            await manager.get("t", 0).flush(1)
            harness.sim.latency_s = 1
            began = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began == pytest.approx(3)  # sixteen at a time
        before = touched(harness)
        manager.stop()
        assert touched(harness) == before
        syncs = [name for (call, name), times in before.items() for _ in range(times) if "sync" in call]
        assert len([name for name in syncs if "/t-1/" in name or name.endswith("/t-1")]) == 7
        harness.sim.crash("power")
        manager = harness.manager()
        assert manager.was_clean
        for partition in range(40):
            log = manager.get("t", partition)
            assert log.log_end_offset == 1
            assert log.producers.producers[7].last_sequence == 0

    run(main)


def test_a_last_flush_that_never_ran_is_done_by_the_close() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")

    async def main() -> None:
        manager = harness.manager()
        log = manager.get("t", 0)
        append(log, producer_id=7, producer_epoch=0, base_sequence=0)
        log.is_closing = True
        assert log.prepare_flush() is not None  # whoever wanted to run it was cancelled
        manager.stop()
        harness.sim.crash("power")
        manager = harness.manager()
        assert manager.was_clean
        log = manager.get("t", 0)
        assert log.log_end_offset == 1
        assert log.producers.producers[7].last_sequence == 0

    run(main)


def test_power_that_fails_during_a_stop() -> None:
    """Where the mark of a clean stop is on the disk, so is all that a start trusts then."""

    def crash_at(step: int, seed: int) -> bool:
        harness = LogManagerHarness(seed)
        harness.add_topic("t", 2)

        async def life() -> None:
            async with harness.running() as manager:
                for partition in range(2):
                    log = manager.get("t", partition)
                    for sequence in range(3):
                        append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
                    if not partition:
                        await log.flush(2)
                        log.roll()
                harness.sim.crash_at = harness.sim.steps + step

        died = dies(lambda: run(life))
        harness.sim.crash("power")
        manager = harness.manager()
        if manager.was_clean:
            for partition in range(2):
                log = manager.get("t", partition)
                assert offsets_in(log) == [0, 1, 2]
                assert log.producers.producers[7].last_sequence == 2
        elif not died:
            raise AssertionError("the mark is not on the disk")
        return died

    for round in range(3):
        assert next(step for step in count() if not crash_at(step, round * 1000 + step)) > 20


@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("first", [True, False])
def test_a_crash_at_every_step_of_a_life(kind: Crash, first: bool) -> None:
    """Start, append, flush, append, stop; after a crash at any step what was acknowledged is there."""

    async def life(harness: LogManagerHarness, acknowledged: list[int], stops: list[int]) -> None:
        manager = harness.manager()
        log = manager.get("t", 0)
        assert log.log_end_offset >= acknowledged[-1]
        assert manager.get("t", 1).log_end_offset >= stops[-1]
        for _ in range(3):
            end = append(log)
            if kind == "process":
                acknowledged.append(end)
        end = log.log_end_offset
        await log.flush(end)
        acknowledged.append(end)
        append(log)
        append(manager.get("t", 1))  # which is not flushed before the stop
        manager.stop()
        acknowledged.append(log.log_end_offset)
        stops.append(manager.get("t", 1).log_end_offset)

    def crash_at(step: int, seed: int) -> bool:
        harness = LogManagerHarness(seed)
        harness.add_topic("t", 2)
        acknowledged, stops = [0], [0]
        if not first:
            run(lambda: life(harness, acknowledged, stops))
        harness.sim.crash_at = harness.sim.steps + step
        died = dies(lambda: run(lambda: life(harness, acknowledged, stops)))
        harness.sim.crash(kind)
        run(lambda: life(harness, acknowledged, stops))
        harness.sim.crash("process")
        log = harness.manager().get("t", 0)
        assert log.log_end_offset == acknowledged[-1]
        assert offsets_in(log) == list(range(log.log_end_offset))
        return died

    for round in range(2):
        assert next(step for step in count() if not crash_at(step, round * 1000 + step)) > 30


def test_a_log_that_lost_its_end_after_a_clean_stop_gets_a_new_epoch() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    harness.add_topic("whole", topic_id=OTHER_ID)

    async def main() -> None:
        async with harness.running() as manager:
            for _ in range(3):
                append(manager.get("t", 0))
                append(manager.get("whole", 0))
        path = f"{DATA}/t-0/{0:020}.log"
        file = harness.sim.open(path)
        file.truncate(file.size() - 1)
        file.close()
        async with harness.running() as manager:
            assert manager.get("whole", 0).log_end_offset == 3
            assert manager.get("t", 0).log_end_offset == 2
        assert harness.truncated == [("t", 0, 2)]

    run(main)


def test_creation_fails_where_the_disk_is_full() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    manager = harness.manager()
    harness.sim.faults.append(Fault("write", errno.ENOSPC))
    with pytest.raises(KafkaError) as caught:
        manager.get("t", 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    harness.sim.faults.clear()
    manager.get("t", 0)


# --- checkpoints and disk errors


def test_checkpoints_are_written_at_their_intervals_and_only_when_something_changed() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")

        def writes(name: str) -> int:
            return harness.sim.counts["rename", f"{DATA}/{name}.new"]

        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            await trio.sleep(6)
            assert harness.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
            assert not harness.sim.exists(f"{DATA}/log-start-offset-checkpoint")
            await trio.sleep(500)
            assert writes("replication-offset-checkpoint") == 1
            assert harness.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
            assert writes("recovery-point-offset-checkpoint") <= 2
            log.delete_records(1)
            assert harness.sim.read_bytes(f"{DATA}/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
            harness.sim.faults.append(Fault("fsync", errno.EIO, lambda path: "checkpoint" in path))
            append(log)
            await trio.sleep(100)
            assert harness.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
            harness.sim.faults.clear()
            await trio.sleep(100)
            assert harness.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 2\n"

    run(main)


def test_a_log_start_that_cannot_be_made_durable_is_not_answered() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for _ in range(5):
                append(log)
            harness.sim.faults.append(Fault("fsync", errno.EIO, lambda path: "log-start" in path))
            with pytest.raises(KafkaError) as caught:
                log.delete_records(3)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert log.log_start_offset == 0
            harness.sim.faults.clear()

    run(main)


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            harness.sim.faults.append(
                Fault("write", errno.ENOSPC, lambda path: path.endswith(".log"), after_bytes=20)
            )
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            harness.sim.faults.clear()
            assert append(log) == 2
        harness.sim.crash("power")
        async with harness.running() as manager:
            assert offsets_in(manager.get("t", 0)) == [0, 1]

    run(main)


def test_a_malformed_checkpoint_is_ignored() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t")
    make_unclean(harness, t=3)
    for name in (
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        harness.sim.replace(f"{DATA}/{name}", b"0\n7\nt 0 12 x\n")

    async def main() -> None:
        assert harness.manager().get("t", 0).log_end_offset == 3

    run(main)


def test_producers_that_write_nothing_are_forgotten() -> None:
    async def main() -> None:
        harness = LogManagerHarness(
            keys={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "500"}
        )
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            now = harness.clock.now_ms()
            records = batch(b"v", timestamp=now, producer_id=7, producer_epoch=0, base_sequence=0)
            log.append(records, leader_epoch=0)
            assert 7 in log.producers.producers
            await trio.sleep(3)
            assert 7 not in log.producers.producers

    run(main)
