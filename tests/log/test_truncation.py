"""Truncation: what goes, what follows, and who is at work on the log meanwhile."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Literal

import pytest
import trio

from oncelog.broker.log.cleaner.cleaner import Cleaner
from oncelog.broker.log.following import append_as_follower
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.log.results import FileRange
from oncelog.broker.log.truncation import prepare_truncation, truncate_fully_and_start_at, truncate_to
from oncelog.wire.batch import read_header
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import finish
from tests.harness.compacted_logs import COMPACT, clean, keyed, read_all, without_cleaner
from tests.harness.compacted_logs import fill as fill_compacted
from tests.harness.log_manager import DATA, LogManagerHarness, append, run
from tests.harness.partition_log import (
    START_MS,
    PartitionLogHarness,
    batch,
    batches_in,
    bytes_of,
    fill,
    flush,
    stamped,
    topic_config,
)
from tests.harness.steps import count_lines
from tests.sim.files import Fault, SimulatedCrash


def everything(log: PartitionLog) -> bytes:
    """All batches, also those above the watermark."""
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


def replicated(**config: Any) -> PartitionLogHarness:
    return PartitionLogHarness(is_replicated=True, **config)


def append_marker(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    marker = end_transaction_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
    )
    log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


# What goes, and what follows.


@pytest.mark.parametrize("offset", range(13))
def test_batches_from_the_offset_on_go(offset: int) -> None:
    """Over several segments."""
    log = replicated(internal_segment_bytes=500).create()
    rows = fill(log, 11)
    assert len(log.segments) > 2
    log.advance_high_watermark(6)
    flush(log)
    truncate_to(log, offset)
    left = min(offset, 11)
    assert everything(log) == b"".join(rows[:left])
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (left, min(6, left), left)
    assert log.size == sum(map(len, rows[:left]))
    log.append(batch((b"new",)), leader_epoch=1)
    log.advance_high_watermark(left + 1)
    for at in range(left + 1):
        data = bytes_of(log.read(at, 1, minimum_one=True, up_to=left + 1))
        assert batches_in(data)[0][0] == at


def test_a_batch_that_reaches_across_the_offset_goes_as_a_whole() -> None:
    log = replicated().create()
    for values in ((b"a", b"b"), (b"c", b"d", b"e")):
        log.append(batch(values), leader_epoch=0)
    truncate_to(log, 4)
    assert (log.log_end_offset, len(batches_in(everything(log)))) == (2, 1)


def test_an_epoch_that_began_without_a_record_goes_with_a_truncation_to_the_end() -> None:
    log = replicated().create()
    log.append(batch(), leader_epoch=1)
    log.become_leader(4)
    assert log.epochs.entries()[-1] == (4, 1)
    truncate_to(log, 1)
    assert log.epochs.entries()[-1] == (1, 0)


def test_leader_epochs_follow() -> None:
    harness = replicated()
    log = harness.create()
    for epoch in (1, 1, 4, 6, 6):
        log.append(batch(), leader_epoch=epoch)
    truncate_to(log, 3)
    assert log.epochs.entries() == [(1, 0), (4, 2)]
    assert log.end_offset_for_epoch(6) == (-1, -1)
    truncate_to(log, 2)
    log.append(batch(), leader_epoch=7)
    assert log.epochs.entries() == [(1, 0), (7, 2)]
    harness.checkpoint(log)
    log.close()
    assert harness.open().epochs.entries() == [(1, 0), (7, 2)]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_producers_are_what_they_were_at_the_offset(is_flushed: bool) -> None:
    log = replicated().create()
    states = []
    for sequence in range(8):
        states.append(log.producers.snapshot())
        epoch, first = divmod(sequence, 3)
        log.append(batch(producer=(7, epoch, first)), leader_epoch=0)
        if sequence == 5:
            log.roll()
    if is_flushed:
        flush(log)
    for offset in (7, 6, 4, 1, 0):
        truncate_to(log, offset)
        assert log.producers.snapshot() == states[offset]
    # Its five last batches are known again, too.
    for sequence in range(4):
        log.append(batch(producer=(7, 0, sequence)), leader_epoch=1)
    truncate_to(log, 3)
    assert log.append(batch(producer=(7, 0, 1)), leader_epoch=1).base_offset == 1
    assert not log.append(batch(producer=(7, 0, 3)), leader_epoch=1).duplicate


def test_the_producers_can_be_found_beforehand_and_in_steps() -> None:
    """Unless the log is truncated in between; what is appended does not matter."""
    log = replicated().create()
    states = []
    for sequence in range(40):
        states.append(log.producers.snapshot())
        log.append(batch(producer=(7, 0, sequence)), leader_epoch=0)
    steps = prepare_truncation(log, 30)
    next(steps)
    log.append(batch(producer=(7, 0, 40)), leader_epoch=0)
    assert len(list(steps)) > 20
    few = count_lines(partial(truncate_to, log, 30))
    assert log.producers.snapshot() == states[30]
    assert few < count_lines(partial(truncate_to, log, 29)) / 2
    assert log.producers.snapshot() == states[29]
    for _ in prepare_truncation(log, 20):
        pass
    truncate_fully_and_start_at(log, 0)
    for sequence in range(30):
        log.append(batch(producer=(8, 0, sequence)), leader_epoch=1)
    truncate_to(log, 20)
    assert list(log.producers.producers) == [8]


def test_a_transaction_whose_marker_was_cut_is_open_again() -> None:
    log = replicated().create()
    log.append(batch(), leader_epoch=0)
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    append_marker(log, 7, commit=False)
    log.append(batch(), leader_epoch=0)
    log.advance_high_watermark(4)
    assert log.aborted_transactions(0, 4) != []
    truncate_to(log, 2)
    assert (log.high_watermark, log.last_stable_offset, log.aborted_transactions(0, 4)) == (2, 1, [])
    append_marker(log, 7, commit=True)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


def test_a_marker_between_watermark_and_offset_keeps_its_transaction_undecided() -> None:
    log = replicated().create()
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    append_marker(log, 7, commit=True)
    log.roll()  # whose snapshot no longer has the transaction
    log.append(batch(producer=(7, 0, 1)), leader_epoch=0)
    log.advance_high_watermark(1)
    truncate_to(log, 2)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_times_follow() -> None:
    log = replicated(index_interval_bytes=0).create()
    for at in range(10):
        log.append(batch(timestamp=START_MS + 10 * at), leader_epoch=0)
    truncate_to(log, 4)
    latest = finish(log.max_timestamp())
    assert latest is not None
    assert latest.offset == 3
    assert finish(log.offset_for_timestamp(START_MS + 31)) is None


def test_everything_goes() -> None:
    for offset in (0, 5, 100):
        harness = replicated(internal_segment_bytes=500)
        log = harness.create()
        fill(log, 11)
        log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
        log.advance_high_watermark(8)
        truncate_fully_and_start_at(log, offset)
        assert (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (
            (offset,) * 4
        )
        assert (log.size, log.epochs.entries(), log.producers.snapshot()) == (0, [], [])
        assert log.recovery_point <= offset
        assert log.append(batch(), leader_epoch=2).base_offset == offset
        harness.checkpoint(log)
        log.close()
        assert harness.open().log_end_offset == offset + 1


def test_a_truncation_below_the_first_segment_begins_anew() -> None:
    log = replicated().create()
    truncate_fully_and_start_at(log, 50)
    log.append(batch(), leader_epoch=0)
    truncate_to(log, 20)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (20, 20, 0)


def test_a_truncation_below_the_log_start_lowers_it() -> None:
    harness = replicated()
    log = harness.create()
    fill(log, 6)
    log.advance_high_watermark(6)
    log.delete_records(5)
    truncate_to(log, 3)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)
    assert harness.saved_log_start == 3


def test_a_failed_truncation_takes_the_log_offline() -> None:
    harness = replicated()
    log = harness.create()
    fill(log)
    harness.disk.faults.append(Fault("fsync", errno.EIO, times=1))
    with pytest.raises(KafkaError) as error:
        truncate_to(log, 4)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline


# Checkpoints, and what a crash leaves.


def test_no_checkpoint_claims_more_than_the_log_has() -> None:
    """They are lowered before the log is cut, also while a thread writes them."""
    harness = LogManagerHarness()
    harness.add_topic("t", replicated=(0,))
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")

    async def main() -> None:
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for _ in range(9):
                append(log)
            log.advance_high_watermark(8)
            await log.flush(9)
            await manager.offsets.save_recovery_points()
            await manager.offsets.save_high_watermarks()
            append(log)
            await log.flush(10)
            harness.sim.latency_s = 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.offsets.save_recovery_points)
                await trio.sleep(0.5)
                truncate_to(log, 4)
                for _ in range(9):
                    append(log)  # the log has grown again before the thread is through
            for name in names:
                assert harness.sim.read_bytes(f"{DATA}/{name}") == b"0\n1\nt 0 4\n"
            harness.sim.latency_s = 0

    run(main)


@pytest.mark.parametrize(
    ("kind", "policy"), [("process", "delete"), ("process", "compact"), ("power", "delete")]
)
@pytest.mark.parametrize("offset", [0, 3, 7])
def test_a_crash_at_every_step_of_a_truncation(
    kind: Literal["process", "power"], policy: str, offset: int
) -> None:
    """The log has its beginning then; and if the truncation had returned, nothing else, whatever came after it. A
    compacted topic may have gaps, and must not get one."""

    def crash_at(step: int, seed: int) -> bool:
        harness = replicated(seed=seed, internal_segment_bytes=500)
        log = harness.create()
        rows = fill(log, 11)
        log.advance_high_watermark(5)
        flush(log)
        harness.checkpoint(log)
        harness.config = topic_config(internal_segment_bytes=500, cleanup_policy=policy)
        harness.disk.crash_at = harness.disk.steps + step
        new = [stamped(batch((bytes(at * 30),)), offset + at, 8) for at in range(6)]
        written = -1
        with suppress(SimulatedCrash):
            truncate_to(log, offset)
            for written, sent in enumerate(new):  # noqa: B007
                append_as_follower(log, sent, 8)
            written = len(new)
        died = harness.disk.is_dead
        harness.disk.crash(kind)
        log = harness.recover(harness.recovery_point)
        found = [data for _, _, data in batches_in(everything(log))]
        if written < 0:
            assert found == rows[: len(found)]
            assert len(found) >= offset
        else:
            assert found == (rows[:offset] + new)[: len(found)]
            assert len(found) >= offset + (written if kind == "process" else 0)
        assert log.high_watermark <= min(5, log.log_end_offset)
        latest = read_header(found[-1]).partition_leader_epoch if found else -1
        assert (log.log_end_offset, log.epochs.latest) == (len(found), latest)
        return died

    for round in range(4):
        assert next(step for step in count() if not crash_at(step, 1000 * round + step)) > 8


# Who is at work meanwhile.


def test_a_reader_has_what_is_left_of_its_range() -> None:
    log = replicated(internal_segment_bytes=500).create()
    rows = fill(log, 11)
    reads = [log.read(offset, 10_000, minimum_one=True, up_to=11).records for offset in (0, 10)]
    truncate_to(log, 1)
    for records, expected in zip(reads, (rows[0], rows[10]), strict=True):
        assert isinstance(records, FileRange)
        assert records.read().startswith(expected)  # of a segment that went, all is left
        records.release()


def test_a_search_by_time_ends_with_what_is_left() -> None:
    log = replicated(index_interval_bytes=1 << 20).create()
    for at in range(600):
        log.append(batch(timestamp=START_MS + at), leader_epoch=0)
    searches = [log.offset_for_timestamp(START_MS + at) for at in (90, 200, 590)]
    for search in searches:
        next(search)
    truncate_to(log, 100)
    found = finish(searches[0])
    assert found is not None
    assert found.offset == 90
    with pytest.raises(KafkaError) as error:
        finish(searches[1])  # its header was read before
    assert error.value.code.retriable
    assert finish(searches[2]) is None


def test_a_flush_that_is_under_way_counts_for_what_is_left() -> None:
    harness = replicated()
    log = harness.create()
    fill(log)
    work = log.prepare_flush()
    assert work is not None
    truncate_to(log, 6)
    for _ in range(4):
        log.append(batch((b"new",)), leader_epoch=1)
    work.run()
    log.flushed(work)
    assert (log.recovery_point, log.log_end_offset) == (6, 10)
    assert log.unflushed_bytes == 4 * len(batch((b"new",)))
    flush(log)
    assert (log.recovery_point, log.unflushed_bytes) == (10, 0)


def test_so_it_does_when_the_log_has_rolled_in_between() -> None:
    harness = replicated()
    log = harness.create()
    rows = fill(log, 6)
    work = log.prepare_flush()
    assert work is not None
    log.roll()
    fill(log, 3)
    truncate_to(log, 4)
    new = batch((b"new",))
    log.append(new, leader_epoch=1)
    log.roll()
    work.run()
    log.flushed(work)
    assert log.recovery_point == 4
    flush(log)
    harness.checkpoint(log)
    harness.disk.crash("power")
    log = harness.recover(harness.recovery_point)
    assert everything(log) == b"".join(rows[:4]) + bytes(new)


def test_who_waits_for_the_flush_of_what_was_cut_is_told() -> None:
    harness = LogManagerHarness()
    harness.add_topic("t", replicated=(0,))

    async def main() -> None:
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for _ in range(3):
                append(log)
            harness.sim.latency_s = 1
            refused = []

            async def wait(up_to: int) -> None:
                try:
                    await log.flush(up_to)
                except KafkaError as error:
                    refused.append((up_to, error.code))

            async with trio.open_nursery() as nursery:
                for up_to in (1, 2, 3):
                    nursery.start_soon(wait, up_to)
                await trio.sleep(0.5)
                truncate_to(log, 2)
            assert refused == [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
            assert log.recovery_point == 2
            harness.sim.latency_s = 0

    run(main)


@pytest.mark.parametrize("offset", [20, 60, 100])
def test_a_cleaning_is_given_up(offset: int) -> None:
    """Of three segments of 40 records, all dirty, that are cleaned into one."""
    harness = without_cleaner()
    harness.add_topic("t", overrides=COMPACT, replicated=(0,))

    async def main() -> None:
        async with harness.running() as manager:
            log = fill_compacted(manager)
            keyed(log, b"active", b"1")
            log.advance_high_watermark(121)
            harness.sim.latency_s = 1
            results = []

            async def cleaning() -> None:
                results.append(await clean(manager))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cleaning)
                await trio.sleep(0.5)  # in the fsync of the cleaned segment
                assert any(".cleaned" in name for name in harness.sim.listdir(f"{DATA}/t-0"))
                truncate_to(log, offset)
            harness.sim.latency_s = 0
            assert results == [True]
            assert len(read_all(log)) == log.log_end_offset == offset
            names = harness.sim.listdir(f"{DATA}/t-0")
            assert not any(".cleaned" in name or ".swap" in name for name in names)
            log.roll()
            keyed(log, b"active", b"2")
            log.advance_high_watermark(offset + 1)
            assert await clean(manager)
            assert len(read_all(log)) == 8

    run(main)


def test_a_cleaning_that_reads_what_is_cut_is_given_up_and_the_log_cleaned_later() -> None:
    harness = without_cleaner()
    harness.add_topic("t", overrides=COMPACT, replicated=(0,))

    async def main() -> None:
        async with harness.running() as manager:
            log = fill_compacted(manager, segments=1)
            keyed(log, b"active", b"1")
            log.advance_high_watermark(41)
            cleaner = Cleaner(manager)
            harness.sim.is_cold = lambda path: path.endswith(".log")  # so a thread reads
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cleaner.clean_filthiest)
                await trio.lowlevel.checkpoint()
                truncate_to(log, 5)
            harness.sim.is_cold = lambda path: False
            assert manager.offsets.cleaned.known == {}
            log.roll()
            keyed(log, b"active", b"2")
            log.advance_high_watermark(6)
            assert await cleaner.clean_filthiest()
            assert manager.offsets.cleaned.known == {("t", 0): 5}

    run(main)


def test_what_was_cleaned_before_is_dirty_again_from_the_offset_on() -> None:
    harness = without_cleaner()
    harness.add_topic("t", overrides=COMPACT, replicated=(0,))

    async def main() -> None:
        async with harness.running() as manager:
            log = fill_compacted(manager)
            keyed(log, b"active", b"1")
            log.advance_high_watermark(121)
            assert await clean(manager)
            assert manager.offsets.cleaned.known["t", 0] == 120
            truncate_to(log, 117)
            for number in range(7):
                keyed(log, b"key-%d" % number, b"new")
            log.roll()
            keyed(log, b"active", b"2")
            log.advance_high_watermark(log.log_end_offset)
            assert await clean(manager)
            assert sorted(record.value or b"" for record in read_all(log)) == [b"2", *[b"new"] * 7]

    run(main)


def test_retention_goes_on_after_a_truncation() -> None:
    log = replicated(internal_segment_bytes=500).create()
    fill(log, 11)
    truncate_to(log, 7)
    fill(log, 5)
    log.advance_high_watermark(12)
    log.delete_oldest(len(log.segments), "test")
    assert (log.log_start_offset, log.size) == (12, 0)
