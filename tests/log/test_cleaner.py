"""Compaction: what stays of a log. kafka-python reads the result."""

from __future__ import annotations

import random
import warnings

import pytest
import trio

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import KafkaError
from oncelog.wire.steps import finish
from tests.harness.compacted_logs import (
    COMPACT,
    Read,
    clean,
    keyed,
    read_all,
    shown,
    without_cleaner,
)
from tests.harness.log_manager import DATA, START_MS, batch, run

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
    from kafka.record import MemoryRecords


def test_the_last_record_of_every_key_stays_at_its_offset() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
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
            assert harness.sim.read_bytes(f"{DATA}/cleaner-offset-checkpoint") == b"0\n1\nt 0 6\n"
            assert not await clean(manager)  # nothing new
            log.roll()
            keyed(log, b"c", b"3")
            assert await clean(manager)
            assert shown(log) == [(4, b"b", b"2"), (6, b"a", b"active"), (7, b"c", b"3")]
            names = harness.sim.listdir(f"{DATA}/t-0")
            assert not any(name.endswith((".cleaned", ".swap")) for name in names)
        async with harness.running() as manager:
            assert shown(manager.get("t", 0)) == [(4, b"b", b"2"), (6, b"a", b"active"), (7, b"c", b"3")]

    run(main)


@pytest.mark.parametrize("seed", range(12))
def test_against_a_model(seed: int) -> None:
    """Random batches, codecs, headers, tombstones and rolls; one or more cleanings, with little memory or much."""

    async def main() -> None:
        chance = random.Random(seed)
        memory = chance.choice(["2000", "134217728"])
        harness = without_cleaner(seed, {"log.cleaner.dedupe.buffer.size": memory})
        harness.add_topic("t", overrides={**COMPACT, "index.interval.bytes": "200"})
        written: dict[int, Read] = {}
        async with harness.running() as manager:
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
        async with harness.running() as manager:
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
        answer = finish(log.offset_for_timestamp(timestamp))
        assert (answer is None) == (not later)
        assert answer is None or answer.offset == later[0].offset


def test_the_memory_for_keys_is_bounded() -> None:
    """What does not fit is left to the next cleaning; nothing is lost meanwhile."""

    async def main() -> None:
        harness = without_cleaner(keys={"log.cleaner.dedupe.buffer.size": "3000"})
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
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
        harness = without_cleaner()
        harness.add_topic("t", overrides={**COMPACT, "delete.retention.ms": "5000"})
        async with harness.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1")
            keyed(log, b"b", b"1")
            keyed(log, b"a", None)
            log.roll()
            assert await clean(manager)
            assert shown(log) == [(1, b"b", b"1"), (2, b"a", None)]
            header = list(log.segments[0].headers())[-1][1]
            assert header.delete_horizon_ms == harness.clock.now_ms() + 5000
            assert [record.timestamp for record in read_all(log)] == [START_MS, START_MS]
            for wait, expected in ((4, [1, 2]), (2, [1])):
                await trio.sleep(wait)
                keyed(log, b"c", b"%d" % wait)
                log.roll()
                assert await clean(manager)
                assert [record.offset for record in read_all(log) if record.key != b"c"] == expected

    run(main)


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides=COMPACT)
        async with harness.running() as manager:
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
        async with harness.running() as manager:
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
    log.append(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def test_transactions() -> None:
    """Aborted records go at once; a marker only when its records are gone, and after a while."""

    async def main() -> None:
        harness = without_cleaner(
            keys={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "1000"}
        )
        harness.add_topic("t", overrides={**COMPACT, "delete.retention.ms": "5000"})
        async with harness.running() as manager:
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
        harness = without_cleaner()
        harness.add_topic("t")  # not compacted yet: a record without a key is taken
        async with harness.running() as manager:
            log = manager.get("t", 0)
            log.append(batch(b"x", key=None), leader_epoch=0)
            log.append(batch(b"y", key=None), leader_epoch=0)
            log.roll()
            harness.add_topic("t", overrides=COMPACT)
            manager.update_config("t", harness.topics["t"].config)
            assert await clean(manager)
            headers = [header for _, header in log.segments[0].headers()]
            assert [(header.base_offset, header.record_count) for header in headers] == [(1, 0)]

    run(main)


def test_an_emptied_batch_before_the_end_of_the_log_goes() -> None:
    """Until Kafka 4.3 the last one of each cleaning stayed; from 4.4 on only that before the high watermark does."""

    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t")
        async with harness.running() as manager:
            log = manager.get("t", 0)
            keyed(log, b"a", b"1")
            log.append(batch(b"y", key=None), leader_epoch=0)
            log.roll()
            keyed(log, b"b", b"1")
            harness.add_topic("t", overrides=COMPACT)
            manager.update_config("t", harness.topics["t"].config)
            assert await clean(manager)
            headers = [header for _, header in log.segments[0].headers()]
            assert [(header.base_offset, header.record_count) for header in headers] == [(0, 1)]

    run(main)


def test_segments_are_merged_up_to_segment_bytes() -> None:
    async def main() -> None:
        harness = without_cleaner()
        harness.add_topic("t", overrides={**COMPACT, "segment.bytes": str(1 << 20)})
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for number in range(8):
                keyed(log, b"%d" % number, bytes(300_000))
                log.roll()
            assert await clean(manager)
            assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 8]
            assert len(read_all(log)) == 8

    run(main)
