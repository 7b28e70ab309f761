"""Start, stop, and the life of partitions."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count
from typing import Literal

import pytest
import trio

from broker.log.data_directory import DataDirectoryError
from broker.log.manager import LogManager
from broker.log.recovery_queue import RECOVER_AT_ONCE_BYTES
from tests.log.rig import DATA, TOPIC_ID, Rig, append, batch, offsets_in, run
from tests.sim.files import Fault, SimulatedCrash
from wire.errors import ErrorCode, KafkaError

Crash = Literal["process", "power"]
OTHER_ID = bytes(range(2, 18))
CLEAN_MARK = f"{DATA}/.kafka_cleanshutdown"


def make_unclean(rig: Rig, **batches: int) -> None:
    """Run a process that appends to partitions 0 of these topics, flushes nothing, and dies."""

    async def main() -> None:
        manager = rig.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            for topic, number in batches.items():
                for _ in range(number):
                    append(manager.get(topic, 0), bytes(100))
            nursery.cancel_scope.cancel()
        rig.sim.crash("process")

    run(main)


def dies(life: Callable[[], object]) -> bool:
    """Whether the simulated crash came before the end."""
    try:
        life()
    except BaseException as error:
        inner: BaseException = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        if not isinstance(inner, SimulatedCrash):
            raise
        return True
    return False


# --- start and stop


def test_a_clean_stop_is_marked_last_and_the_mark_goes_first() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t")
        async with rig.running() as manager:
            assert not manager.was_clean
            assert not rig.sim.exists(CLEAN_MARK)
            append(manager.get("t", 0))
        assert rig.sim.read_bytes(CLEAN_MARK) == b'{"version":0,"brokerEpoch":-1}'
        assert rig.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
        assert rig.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
        rig.sim.crash("power")
        async with rig.running() as manager:
            assert manager.was_clean
            assert not rig.sim.exists(CLEAN_MARK)
            rig.sim.crash("power")  # the mark must not come back
            assert not rig.sim.exists(CLEAN_MARK)

    run(main)


def test_partitions_open_on_first_use() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t", 20)
        async with rig.running() as manager:
            for partition in range(20):
                append(manager.get("t", partition))
        rig.sim.counts.clear()
        async with rig.running() as manager:
            assert len(manager.logs) == 0
            assert manager.get("t", 7).log_end_offset == 1
            opened = {path.split("/")[2] for operation, path in rig.sim.counts if "/t-" in path}
            assert opened == {"t-7"}
            assert manager.size_of("t", 7) == manager.size_of("t", 8) > 0
        # and what was not opened is not forgotten
        assert rig.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint").count(b"\n") == 22

    run(main)


def test_unknown_partitions() -> None:
    rig = Rig()
    rig.add_topic("t")
    manager = rig.manager()
    for topic, partition in (("no", 0), ("t", 1), ("t", -1)):
        with pytest.raises(KafkaError) as caught:
            manager.get(topic, partition)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_process_at_a_time() -> None:
    rig = Rig()
    manager = rig.manager()
    with pytest.raises(DataDirectoryError, match="another process"):
        rig.manager()
    manager.stop()
    rig.manager()


def test_a_start_that_gets_nowhere_leaves_a_clean_directory_clean() -> None:
    rig = Rig()
    rig.add_topic("t")
    rig.manager().stop()
    manager = LogManager(DATA, rig.files, rig.clock, rig.random, rig.config)
    manager.start()
    manager.stop()
    assert rig.sim.exists(CLEAN_MARK)
    assert rig.manager().was_clean


@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("first", [True, False])
def test_a_crash_at_every_step_of_a_life(kind: Crash, first: bool) -> None:
    """Start, append, flush, append, stop; after a crash at any step what was acknowledged is there."""

    async def life(rig: Rig, acknowledged: list[int], stops: list[int]) -> None:
        manager = rig.manager()
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
        rig = Rig(seed)
        rig.add_topic("t", 2)
        acknowledged, stops = [0], [0]
        if not first:
            run(lambda: life(rig, acknowledged, stops))
        rig.sim.crash_at = rig.sim.steps + step
        died = dies(lambda: run(lambda: life(rig, acknowledged, stops)))
        rig.sim.crash(kind)
        run(lambda: life(rig, acknowledged, stops))
        rig.sim.crash("process")
        log = rig.manager().get("t", 0)
        assert log.log_end_offset == acknowledged[-1]
        assert offsets_in(log) == list(range(log.log_end_offset))
        return died

    for round in range(2):
        assert next(step for step in count() if not crash_at(step, round * 1000 + step)) > 30


def test_a_log_that_lost_its_end_after_a_clean_stop_gets_a_new_epoch() -> None:
    rig = Rig()
    rig.add_topic("t")
    rig.add_topic("whole", topic_id=OTHER_ID)

    async def main() -> None:
        async with rig.running() as manager:
            for _ in range(3):
                append(manager.get("t", 0))
                append(manager.get("whole", 0))
        path = f"{DATA}/t-0/{0:020}.log"
        file = rig.sim.open(path)
        file.truncate(file.size() - 1)
        file.close()
        async with rig.running() as manager:
            assert manager.get("whole", 0).log_end_offset == 3
            assert manager.get("t", 0).log_end_offset == 2
        assert rig.truncated == [("t", 0, 2)]

    run(main)


# --- unclean stops


def test_after_an_unclean_stop_partitions_are_recovered_in_the_background() -> None:
    rig = Rig()
    rig.add_topic("big")
    rig.add_topic("small", topic_id=OTHER_ID)
    make_unclean(rig, big=2 * RECOVER_AT_ONCE_BYTES // 170, small=3)

    async def main() -> None:
        manager = rig.manager()
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
        assert rig.sim.exists(CLEAN_MARK)
        assert rig.truncated == []

    run(main)


def test_a_stop_before_all_is_recovered_is_not_clean_and_loses_nothing() -> None:
    rig = Rig()
    rig.add_topic("t")
    rig.add_topic("u", topic_id=OTHER_ID)
    make_unclean(rig, t=3, u=2)

    async def main() -> None:
        manager = rig.manager()
        manager.get("t", 0)
        manager.stop()
        assert not rig.sim.exists(CLEAN_MARK)
        manager = rig.manager()
        assert manager.get("t", 0).log_end_offset == 3
        assert manager.get("u", 0).log_end_offset == 2
        manager.stop()
        assert rig.sim.exists(CLEAN_MARK)

    run(main)


def test_a_partition_is_deleted_while_it_is_recovered() -> None:
    rig = Rig()
    rig.add_topic("t")
    make_unclean(rig, t=2 * RECOVER_AT_ONCE_BYTES // 170)

    async def main() -> None:
        async with rig.running() as manager:
            with pytest.raises(KafkaError):
                manager.get("t", 0)
            del rig.topics["t"]
            manager.delete("t", 0)
            rig.add_topic("t", topic_id=OTHER_ID)
            assert append(manager.get("t", 0)) == 1
            await manager.recovered()
            assert manager.get("t", 0).log_end_offset == 1
            await trio.sleep(100)
        async with rig.running() as manager:
            assert offsets_in(manager.get("t", 0)) == [0]

    run(main)


def test_partitions_that_are_asked_for_are_recovered_first_then_those_written_last() -> None:
    rig = Rig()
    rig.add_topic("t", 6)

    async def make() -> None:
        manager = rig.manager()
        for partition in (3, 1, 5, 0, 2, 4):
            while manager.get("t", partition).size < 4 * RECOVER_AT_ONCE_BYTES:
                append(manager.get("t", partition), bytes(1000))
            rig.clock.ahead_ms += 1000
        rig.sim.crash("process")

    run(make)

    async def main() -> None:
        manager = rig.manager()
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
    rig = Rig()
    rig.add_topic("t", 3)

    async def main() -> None:
        manager = rig.manager()
        for partition in range(3):
            for _ in range(3):
                append(manager.get("t", partition))
        await manager.offsets.save_high_watermarks()
        rig.sim.crash("process")
        # Partition 0 is torn; partition 1 has lost its end without a trace but the high watermark that was seen.
        size = rig.sim.size(f"{DATA}/t-0/{0:020d}.log")
        rig.sim.open(f"{DATA}/t-0/{0:020d}.log").truncate(size - 1)
        rig.sim.open(f"{DATA}/t-1/{0:020d}.log").truncate(size // 3)
        manager = rig.manager()
        assert [manager.get("t", partition).log_end_offset for partition in range(3)] == [2, 1, 3]
        assert rig.truncated == [("t", 0, 2), ("t", 1, 1)]
        manager.stop()

    run(main)


def test_a_partition_that_cannot_be_read_does_not_take_the_others_with_it() -> None:
    for clean in (True, False):
        rig = Rig()
        rig.add_topic("t", 3)

        async def main(rig: Rig = rig, clean: bool = clean) -> None:
            async with rig.running() as manager:
                for partition in range(3):
                    append(manager.get("t", partition))
            if not clean:
                rig.sim.remove(CLEAN_MARK)
            rig.sim.faults.append(Fault("open", errno.EIO, lambda path: "t-1/" in path))
            manager = rig.manager()
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
            assert not rig.sim.exists(CLEAN_MARK)
            rig.sim.faults.clear()
            assert rig.manager().get("t", 1).log_end_offset == 1

        run(main)


# --- creating and deleting


def test_a_deleted_partition_is_renamed_at_once_and_removed_later() -> None:
    async def main() -> None:
        rig = Rig(keys={"log.segment.delete.delay.ms": "60000"})
        rig.add_topic("t", 2)
        rig.add_topic("u", topic_id=OTHER_ID)
        async with rig.running() as manager:
            log = manager.get("t", 0)
            append(log)
            append(manager.get("t", 1))
            append(manager.get("u", 0))
            read = log.read(0, 1000, minimum_one=True, up_to=1)
        async with rig.running() as manager:
            log = manager.get("t", 0)
            read = log.read(0, 1000, minimum_one=True, up_to=1)
            del rig.topics["t"]
            manager.delete("t", 0)  # open
            manager.delete("t", 1)  # not open
            names = [name for name in rig.sim.listdir(DATA) if name.startswith("t-")]
            assert len(names) == 2
            for name in names:
                partition, _, suffix = name.partition(".")
                assert partition in ("t-0", "t-1")
                hexadecimal, _, word = suffix.partition("-")
                assert (len(hexadecimal), word) == (32, "delete")
                int(hexadecimal, 16)
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError):
                manager.get("t", 0)
            await trio.sleep(59)
            assert len([name for name in rig.sim.listdir(DATA) if name.startswith("t-")]) == 2
            await trio.sleep(2)
            assert [name for name in rig.sim.listdir(DATA) if name.startswith(("t-", "u-"))] == ["u-0"]
            read.records.release()  # type: ignore[union-attr]
            assert manager.get("u", 0).log_end_offset == 1

    run(main)


def test_what_is_left_of_deleted_partitions_goes_after_the_next_start() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t")
        async with rig.running() as manager:
            append(manager.get("t", 0))
            del rig.topics["t"]
            manager.delete("t", 0)
        assert any(name.endswith("-delete") for name in rig.sim.listdir(DATA))
        async with rig.running():
            await trio.sleep(61)
            assert not any(name.startswith("t-") for name in rig.sim.listdir(DATA))

    run(main)


@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_every_step_of_a_deletion(kind: Crash) -> None:
    """A topic is deleted and made anew under its name: of the old one nothing is ever seen."""

    async def prepare(rig: Rig) -> None:
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for _ in range(20):
                append(log)
            log.delete_records(10)
            await log.flush(20)

    async def again(rig: Rig) -> None:
        async with rig.running() as manager:
            del rig.topics["t"]
            manager.delete("t", 0)
            rig.add_topic("t", topic_id=OTHER_ID)
            append(manager.get("t", 0))

    def crash_at(step: int) -> bool:
        rig = Rig(seed=step)
        rig.add_topic("t")
        run(lambda: prepare(rig))
        rig.sim.crash_at = rig.sim.steps + step
        died = dies(lambda: run(lambda: again(rig)))
        rig.sim.crash(kind)
        if "t" not in rig.topics:  # it died between the two; the topic is made anew now
            rig.add_topic("t", topic_id=OTHER_ID)

        async def check() -> None:
            async with rig.running() as manager:
                log = manager.get("t", 0)
                if log.topic_id == TOPIC_ID:
                    assert rig.topics["t"].topic_id == TOPIC_ID
                    assert (log.log_start_offset, log.log_end_offset) == (10, 20)
                else:
                    assert log.log_start_offset == 0
                    assert log.log_end_offset == len(offsets_in(log)) <= 1
                    assert log.recovery_point <= log.log_end_offset
                await trio.sleep(100)
                names = [name for name in rig.sim.listdir(DATA) if name.endswith("-delete")]
                assert names == []

        run(check)
        return died

    assert next(step for step in count() if not crash_at(step)) > 15


def test_an_earlier_topics_directory_is_moved_aside() -> None:
    for clean in (True, False):
        rig = Rig()
        rig.add_topic("t")
        rig.add_topic("gone", topic_id=OTHER_ID)

        async def main(rig: Rig = rig, clean: bool = clean) -> None:
            async with rig.running() as manager:
                append(manager.get("t", 0))
                append(manager.get("gone", 0))
            if not clean:
                rig.sim.remove(CLEAN_MARK)
            rig.add_topic("t", topic_id=bytes(range(3, 19)))
            del rig.topics["gone"]
            async with rig.running() as manager:
                assert manager.get("t", 0).log_end_offset == 0
                names = rig.sim.listdir(DATA)
                assert sorted(name.partition(".")[0] for name in names if name.endswith("-stray")) == [
                    "gone-0",
                    "t-0",
                ]
            async with rig.running():
                await trio.sleep(100)
                assert len([name for name in rig.sim.listdir(DATA) if name.endswith("-stray")]) == 2

        run(main)


def test_creation_fails_where_the_disk_is_full() -> None:
    rig = Rig()
    rig.add_topic("t")
    manager = rig.manager()
    rig.sim.faults.append(Fault("write", errno.ENOSPC))
    with pytest.raises(KafkaError) as caught:
        manager.get("t", 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    rig.sim.faults.clear()
    manager.get("t", 0)


# --- checkpoints and disk errors


def test_checkpoints_are_written_at_their_intervals_and_only_when_something_changed() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t")

        def writes(name: str) -> int:
            return rig.sim.counts["rename", f"{DATA}/{name}.tmp"]

        async with rig.running() as manager:
            log = manager.get("t", 0)
            append(log)
            await trio.sleep(6)
            assert rig.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
            assert not rig.sim.exists(f"{DATA}/log-start-offset-checkpoint")
            await trio.sleep(500)
            assert writes("replication-offset-checkpoint") == 1
            assert rig.sim.read_bytes(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
            assert writes("recovery-point-offset-checkpoint") <= 2
            log.delete_records(1)
            assert rig.sim.read_bytes(f"{DATA}/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
            rig.sim.faults.append(Fault("fsync", errno.EIO, lambda path: "checkpoint" in path))
            append(log)
            await trio.sleep(100)
            assert rig.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
            rig.sim.faults.clear()
            await trio.sleep(100)
            assert rig.sim.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n1\nt 0 2\n"

    run(main)


def test_a_log_start_that_cannot_be_made_durable_is_not_answered() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t")
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for _ in range(5):
                append(log)
            rig.sim.faults.append(Fault("fsync", errno.EIO, lambda path: "log-start" in path))
            with pytest.raises(KafkaError) as caught:
                log.delete_records(3)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert log.log_start_offset == 0
            rig.sim.faults.clear()

    run(main)


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    async def main() -> None:
        rig = Rig()
        rig.add_topic("t")
        async with rig.running() as manager:
            log = manager.get("t", 0)
            append(log)
            rig.sim.faults.append(
                Fault("write", errno.ENOSPC, lambda path: path.endswith(".log"), after_bytes=20)
            )
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            rig.sim.faults.clear()
            assert append(log) == 2
        rig.sim.crash("power")
        async with rig.running() as manager:
            assert offsets_in(manager.get("t", 0)) == [0, 1]

    run(main)


def test_a_malformed_checkpoint_is_ignored() -> None:
    rig = Rig()
    rig.add_topic("t")
    make_unclean(rig, t=3)
    for name in (
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        rig.sim.replace(f"{DATA}/{name}", b"0\n7\nt 0 12 x\n")

    async def main() -> None:
        assert rig.manager().get("t", 0).log_end_offset == 3

    run(main)


def test_producers_that_write_nothing_are_forgotten() -> None:
    async def main() -> None:
        rig = Rig(
            keys={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "500"}
        )
        rig.add_topic("t")
        async with rig.running() as manager:
            log = manager.get("t", 0)
            now = rig.clock.now_ms()
            records = batch(b"v", timestamp=now, producer_id=7, producer_epoch=0, base_sequence=0)
            log.append(records, leader_epoch=0)
            assert 7 in log.producers.producers
            await trio.sleep(3)
            assert 7 not in log.producers.producers

    run(main)
