"""Compaction: what stays of a log, when, and through crashes. kafka-python reads the result."""

from __future__ import annotations

import errno
import random
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Literal, NamedTuple

import pytest
import trio

from broker.log.cleaner import Cleaner
from broker.log.manager import LogManager
from broker.log.partition_log import Origin, PartitionLog
from tests.log.rig import DATA, START_MS, Rig, append, batch, run
from tests.log.test_manager import dies
from tests.sim.files import Fault
from wire.batch import BatchBuilder
from wire.control import end_transaction_marker
from wire.errors import KafkaError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
    from kafka.record import MemoryRecords  # type: ignore[import-untyped]

DAY_MS = 86_400_000
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Read(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


def batches_in(log: PartitionLog) -> Iterator[object]:
    for segment in log.segments:
        records = MemoryRecords(segment.file.pread(segment.size, 0))
        while records.has_next():
            found = records.next_batch()
            assert found.validate_crc()
            yield found


def read_all(log: PartitionLog) -> list[Read]:
    """The data records of a log, by kafka-python; control records left out."""
    return [
        Read(record.offset, record.key, record.value, record.timestamp, tuple(record.headers))
        for found in batches_in(log)
        if not found.is_control_batch  # type: ignore[attr-defined]
        for record in found  # type: ignore[attr-defined]
    ]


def keyed(
    log: PartitionLog, key: bytes, value: bytes | None, timestamp: int = START_MS, **fields: int
) -> int:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    builder.append(timestamp, key, value)
    log.append(memoryview(builder.build()), leader_epoch=0)
    return log.log_end_offset - 1


def quiet_rig(seed: int = 0, keys: dict[str, str] | None = None) -> Rig:
    """Without the cleaner in the background: tests say when it runs."""
    return Rig(seed, keys={"log.cleaner.enable": "false", **(keys or {})})


async def clean(manager: LogManager) -> bool:
    """What the background does when its time has come."""
    return await Cleaner(manager).clean_filthiest()


def shown(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def test_the_last_record_of_every_key_stays_at_its_offset() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for value in (b"1", b"2"):
                for key in (b"a", b"b", b"a"):
                    keyed(log, key, value)
                log.roll()
            keyed(log, b"a", b"active")
            assert await clean(manager)
            # The active segment is not touched, and does not count.
            assert shown(log) == [(4, b"b", b"2"), (5, b"a", b"2"), (6, b"a", b"active")]
            assert [segment.base_offset for segment in log.segments] == [0, 6]
            assert (log.log_start_offset, log.log_end_offset) == (0, 7)
            assert log.size == sum(segment.size for segment in log.segments)
            assert rig.sim.read_bytes(f"{DATA}/cleaner-offset-checkpoint") == b"0\n1\nt 0 6\n"
            assert not await clean(manager)  # nothing new
            log.roll()
            keyed(log, b"c", b"3")
            assert await clean(manager)
            assert shown(log) == [(4, b"b", b"2"), (6, b"a", b"active"), (7, b"c", b"3")]
            names = rig.sim.listdir(f"{DATA}/t-0")
            assert not any(name.endswith((".cleaned", ".swap")) for name in names)
        async with rig.running() as manager:
            assert shown(manager.get("t", 0)) == [(4, b"b", b"2"), (6, b"a", b"active"), (7, b"c", b"3")]

    run(main)


@pytest.mark.parametrize("seed", range(12))
def test_against_a_model(seed: int) -> None:
    """Random batches, codecs, headers, tombstones and rolls; one or more cleanings, with little memory or much."""

    async def main() -> None:
        chance = random.Random(seed)
        memory = chance.choice(["2000", "134217728"])
        rig = quiet_rig(seed, {"log.cleaner.dedupe.buffer.size": memory})
        rig.add_topic("t", overrides={**COMPACT, "index.interval.bytes": "200"})
        written: dict[int, Read] = {}
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for _ in range(chance.randint(1, 3)):
                for _ in range(chance.randint(1, 60)):
                    write_random_batch(log, chance, written)
                    if chance.random() < 0.1:
                        log.roll()
                log.roll()
                end = log.active.base_offset
                while await clean(manager):
                    pass
                last = {record.key: record.offset for record in written.values()}
                assert read_all(log) == [
                    record
                    for record in written.values()
                    if record.offset >= end or last[record.key] == record.offset
                ]
            check_reads(log, chance)
            log_end = log.log_end_offset
        async with rig.running() as manager:
            log = manager.get("t", 0)
            assert log.log_end_offset == log_end
            check_reads(log, chance)

    run(main)


def write_random_batch(log: PartitionLog, chance: random.Random, written: dict[int, Read]) -> None:
    builder = BatchBuilder(codec=chance.choice([0, 0, 1, 2, 3, 4]))
    base = log.log_end_offset
    for offset in range(base, base + chance.randint(1, 8)):
        key = b"key-%d" % chance.randint(0, 30) + b"x" * chance.choice([0, 20])
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, 60))
        timestamp = START_MS - chance.randint(0, 100_000)
        headers = [("h", b"v"), ("empty", None)][: chance.randint(0, 2)]
        builder.append(timestamp, key, value, headers)
        written[offset] = Read(offset, key, value, timestamp, tuple(headers))
    log.append(memoryview(builder.build()), leader_epoch=0)


def check_reads(log: PartitionLog, chance: random.Random) -> None:
    """A fetch from any offset, and a look-up of any time, finds what a scan of the files does."""
    records = read_all(log)
    for _ in range(50):
        offset = chance.randrange(log.log_start_offset, log.log_end_offset)
        read = log.read(offset, 1, minimum_one=True, up_to=log.log_end_offset)
        found = read.records
        assert not isinstance(found, bytes)
        data = found.file.pread(found.size, found.position)
        found.release()
        offsets = [record.offset for record in MemoryRecords(data).next_batch()]
        following = [record.offset for record in records if record.offset >= offset]
        if offsets and following:
            assert offsets[-1] >= offset or offsets[-1] < following[0]
        timestamp = START_MS - chance.randint(0, 110_000)
        later = [record for record in records if record.timestamp >= timestamp]
        answer = log.offset_for_timestamp(timestamp)
        assert (answer is None) == (not later)
        assert answer is None or answer.offset == later[0].offset


def test_the_memory_for_keys_is_bounded() -> None:
    """What does not fit is left to the next cleaning; nothing is lost meanwhile."""

    async def main() -> None:
        rig = quiet_rig(keys={"log.cleaner.dedupe.buffer.size": "3000"})
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for number in range(100):
                keyed(log, b"%d" % (number % 50), b"%d" % number)
            log.roll()
            cleaned = []
            while await clean(manager):
                cleaned.append(manager.offsets.cleaned.known["t", 0])
                latest = {record.key: record.offset for record in read_all(log)}
                assert latest == {b"%d" % (number % 50): number for number in range(50, 100)}
            assert len(cleaned) > 3
            assert len(read_all(log)) == 50

    run(main)


def test_tombstones_stay_for_delete_retention_ms_after_their_first_cleaning() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides={**COMPACT, "delete.retention.ms": "5000"})
        async with rig.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1")
            keyed(log, b"b", b"1")
            keyed(log, b"a", None)
            log.roll()
            assert await clean(manager)
            assert shown(log) == [(1, b"b", b"1"), (2, b"a", None)]
            header = list(log.segments[0].headers())[-1][1]
            assert header.delete_horizon_ms == rig.clock.now_ms() + 5000
            assert [record.timestamp for record in read_all(log)] == [START_MS, START_MS]
            for wait, expected in ((4, [1, 2]), (2, [1])):
                await trio.sleep(wait)
                keyed(log, b"c", b"%d" % wait)
                log.roll()
                assert await clean(manager)
                assert [record.offset for record in read_all(log) if record.key != b"c"] == expected

    run(main)


def test_when_a_log_is_due() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.6"})
        async with rig.running() as manager:
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
        rig = quiet_rig()
        rig.add_topic(
            "t",
            overrides={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1",
                "min.compaction.lag.ms": "10000",
                "max.compaction.lag.ms": "20000",
            },
        )
        async with rig.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1")
            log.roll()
            keyed(log, b"a", b"2", START_MS + 15_000)
            log.roll()
            assert not await clean(manager)
            await trio.sleep(21)
            assert await clean(manager)
            assert len(read_all(log)) == 2  # the second segment is too young to be looked at
            assert rig.sim.read_bytes(f"{DATA}/cleaner-offset-checkpoint") == b"0\n1\nt 0 1\n"
            await trio.sleep(15)
            assert await clean(manager)
            assert shown(log) == [(1, b"a", b"2")]

    run(main)


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for sequence in range(3):
                keyed(log, b"a", b"1", producer_id=7, producer_epoch=2, base_sequence=sequence)
            keyed(log, b"a", b"2")
            keyed(log, b"b", b"2")
            log.roll()
            assert await clean(manager)
            assert shown(log) == [(3, b"a", b"2"), (4, b"b", b"2")]
            header = next(log.segments[0].headers())[1]
            assert (header.base_offset, header.record_count, header.size) == (2, 0, 61)
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 2)
            assert header.max_timestamp == START_MS
        async with rig.running() as manager:
            log = manager.get("t", 0)
            assert (
                keyed(log, b"a", b"1", producer_id=7, producer_epoch=2, base_sequence=2) == 4
            )  # a duplicate
            with pytest.raises(KafkaError):
                keyed(log, b"a", b"3", producer_id=7, producer_epoch=2, base_sequence=4)
            keyed(log, b"a", b"3", producer_id=7, producer_epoch=2, base_sequence=3)
            log.roll()
            assert await clean(manager)
            assert [header.base_offset for _, header in log.segments[0].headers()] == [4, 5]

    run(main)


def transactional(log: PartitionLog, key: bytes, value: bytes, producer_id: int, sequence: int) -> None:
    records = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    records.append(START_MS, key, value)
    log.append(memoryview(records.build()), leader_epoch=0)


def mark(log: PartitionLog, producer_id: int, commit: bool) -> None:
    marker = end_transaction_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
    )
    log.append(memoryview(marker), leader_epoch=0, origin=Origin.COORDINATOR)


def test_transactions() -> None:
    """Aborted records go at once; a marker only when its records are gone, and after a while."""

    async def main() -> None:
        rig = quiet_rig(
            keys={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "1000"}
        )
        rig.add_topic("t", overrides={**COMPACT, "delete.retention.ms": "5000"})
        async with rig.running() as manager:
            log = manager.get("t", 0)
            transactional(log, b"a", b"aborted", 1, 0)  # 0
            transactional(log, b"a", b"committed", 2, 0)  # 1
            mark(log, 1, commit=False)  # 2
            mark(log, 2, commit=True)  # 3
            transactional(log, b"b", b"open", 3, 0)  # 4
            keyed(log, b"c", b"plain")  # 5
            log.roll()
            assert not await clean(manager)  # one is undecided: its segment is above the last stable offset
            mark(log, 3, commit=True)  # 6
            log.roll()
            await trio.sleep(3)  # producers are forgotten
            assert await clean(manager)
            left = [header.base_offset for _, header in log.segments[0].headers()]
            assert left == [1, 2, 3, 4, 5, 6]
            assert [it.producer_id for it in log.aborted_transactions(0, 7)] == [1]
            assert shown(log) == [(1, b"a", b"committed"), (4, b"b", b"open"), (5, b"c", b"plain")]
            # The abort marker's records are gone, so its time runs from the second cleaning on.
            for step, expected in enumerate(
                (
                    [1, 2, 3, 4, 5, 6],  # the marker of the aborted transaction gets its delete horizon
                    [1, 3, 4, 5, 6],
                )
            ):
                keyed(log, b"step", b"%d" % step)
                log.roll()
                assert await clean(manager)
                left = [
                    header.base_offset for _, header in log.segments[0].headers() if header.base_offset < 7
                ]
                assert left == expected
                assert log.aborted_transactions(0, 7) == []
                await trio.sleep(6)

    run(main)


def test_the_last_offset_of_a_cleaning_is_not_lost() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t")  # not compacted yet: a record without a key is taken
        async with rig.running() as manager:
            log = manager.get("t", 0)
            log.append(batch(b"x", key=None), leader_epoch=0)
            log.append(batch(b"y", key=None), leader_epoch=0)
            log.roll()
            rig.add_topic("t", overrides=COMPACT)
            manager.update_config("t", rig.topics["t"].config)
            assert await clean(manager)
            headers = [header for _, header in log.segments[0].headers()]
            assert [(header.base_offset, header.record_count) for header in headers] == [(1, 0)]

    run(main)


def test_segments_are_merged_up_to_segment_bytes() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides={**COMPACT, "segment.bytes": str(1 << 20)})
        async with rig.running() as manager:
            log = manager.get("t", 0)
            for number in range(8):
                keyed(log, b"%d" % number, bytes(300_000))
                log.roll()
            assert await clean(manager)
            assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 8]
            assert len(read_all(log)) == 8

    run(main)


def test_compact_and_delete() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic(
            "t", overrides={**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
        )
        async with rig.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1", START_MS - DAY_MS + 60_000)
            log.roll()
            keyed(log, b"b", b"1")
            log.roll()
            assert await clean(manager)
            rig.clock.ahead_ms = DAY_MS
            await trio.sleep(300)
            assert log.log_start_offset == 2
            assert read_all(log) == []
            # The checkpoint is below the log start now, which is where the next cleaning begins.
            keyed(log, b"c", b"1")
            keyed(log, b"c", b"2")
            log.roll()
            assert await clean(manager)
            assert shown(log) == [(3, b"c", b"2")]

    run(main)


# --- what may come between


def fill(manager: LogManager, segments: int = 3, batches: int = 40) -> PartitionLog:
    log = manager.get("t", 0)
    for segment in range(segments):
        for number in range(batches):
            keyed(log, b"key-%d" % (number % 7), b"%d-%d" % (segment, number))
        log.roll()
    return log


@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_every_step_of_a_cleaning(kind: Literal["process", "power"]) -> None:
    async def prepare(rig: Rig) -> None:
        async with rig.running() as manager:
            log = fill(manager, batches=8)
            keyed(log, b"active", b"1")

    async def cleaning(rig: Rig) -> None:
        manager = rig.manager()
        manager.get("t", 0)
        await clean(manager)

    async def check(rig: Rig) -> None:
        async with rig.running() as manager:
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
            names = rig.sim.listdir(f"{DATA}/t-0")
            assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names), names
        assert rig.truncated == []

    expected = {b"key-%d" % (number % 7): 16 + number for number in range(1, 8)} | {b"active": 24}

    def crash_at(step: int, seed: int) -> bool:
        rig = quiet_rig(seed)
        rig.add_topic("t", overrides=COMPACT)
        run(lambda: prepare(rig))
        rig.sim.crash_at = rig.sim.steps + step
        died = dies(lambda: run(lambda: cleaning(rig)))
        rig.sim.crash(kind)
        run(lambda: check(rig))
        return died

    for round in range(3):
        assert next(step for step in count() if not crash_at(step, 1000 * round + step)) > 20


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["write", "fsync", "rename", "sync_dir"])
def test_disk_errors(operation: Literal["write", "fsync", "rename", "sync_dir"], error: int) -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            log = fill(manager)
            keyed(log, b"active", b"1")
            await log.flush(log.log_end_offset)
            before = read_all(log)
            on_cleaned = operation in ("write", "fsync")
            fault = Fault(operation, error, lambda path: not on_cleaned or ".cleaned" in path, times=1)
            rig.sim.faults.append(fault)
            assert not await clean(manager)
            swapping = not on_cleaned
            assert log.offline == (swapping or error == errno.EIO)
            if not log.offline:
                assert read_all(log) == before
                assert not any(".cleaned" in name for name in rig.sim.listdir(f"{DATA}/t-0"))
                assert await clean(manager)
                assert len(read_all(log)) == 8
        if operation != "rename":  # a half-done swap is the crash test's matter
            return
        rig.sim.faults.clear()
        async with rig.running() as manager:
            log = manager.get("t", 0)
            assert {record.key: record.offset for record in read_all(log)} == {
                record.key: record.offset for record in before
            }

    run(main)


@pytest.mark.parametrize("event", ["delete", "policy", "retention", "offline"])
def test_what_happens_to_a_log_while_it_is_cleaned(event: str) -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            log = fill(manager)
            keyed(log, b"active", b"1")
            rig.sim.latency_s = 1.0
            results = []

            async def cleaning() -> None:
                results.append(await clean(manager))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cleaning)
                await trio.sleep(0.5)  # in the fsync of the cleaned segment
                assert any(".cleaned" in name for name in rig.sim.listdir(f"{DATA}/t-0"))
                if event == "delete":
                    del rig.topics["t"]
                    manager.delete("t", 0)
                elif event == "policy":
                    rig.add_topic("t")
                    manager.update_config("t", rig.topics["t"].config)
                elif event == "retention":
                    log.delete_oldest(1, "test")
                else:
                    log.fail(OSError(errno.EIO, "test"))
            rig.sim.latency_s = 0
            assert results == [True]
            assert rig.sim.held == 0
            names = rig.sim.listdir(f"{DATA}/t-0") if event != "delete" else []
            assert not any(".cleaned" in name or ".swap" in name for name in names)
            if event in ("policy", "retention"):
                assert len(read_all(log)) == (121 if event == "policy" else 81)
            if event == "retention":
                assert await clean(manager)
                assert len(read_all(log)) == 8

    run(main)


def test_a_damaged_log_is_left_alone() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
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
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
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


def test_the_background_compacts() -> None:
    async def main() -> None:
        rig = Rig(keys={"log.cleaner.backoff.ms": "5000"})
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            await trio.sleep(1)
            log = fill(manager)
            keyed(log, b"active", b"1")
            await trio.sleep(3.9)
            assert len(read_all(log)) == 121
            await trio.sleep(0.2)
            assert len(read_all(log)) == 8

    run(main)


def test_reads_of_what_is_not_cached_happen_in_a_thread() -> None:
    async def main() -> None:
        rig = quiet_rig()
        rig.add_topic("t", overrides=COMPACT)
        async with rig.running() as manager:
            fill(manager)
            rig.sim.is_cold = lambda path: path.endswith(".log")
            offloaded = 0
            offload = rig.sim.offload

            async def counting(call):  # type: ignore[no-untyped-def]
                nonlocal offloaded
                offloaded += "pread" in repr(call)
                return await offload(call)

            rig.sim.offload = counting  # type: ignore[method-assign]
            assert await clean(manager)
            assert offloaded == 6  # three segments, read twice

    run(main)
