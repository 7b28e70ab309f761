"""Random work on a leader's and a follower's log, with elections, truncations and crashes, against plain lists.

The leader's disk is always well. The follower's crashes; when it is back, it finds out by leader epochs how far its log
agrees with the leader's, cuts the rest, and goes on. What must be true of it (offsets, producers, transactions, epochs,
indexes) follows from the list of its batches by the few lines of `Expected`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pytest

from oncelog.broker.log.durability import FlushWork
from oncelog.broker.log.following import append_as_follower, follow_log_start
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.log.results import FileRange
from oncelog.broker.log.truncation import truncate_fully_and_start_at, truncate_to
from oncelog.wire.batch import read_header
from oncelog.wire.control import COMMIT_MARKER, end_transaction_marker, read_control_type
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.records import iterate_records
from oncelog.wire.steps import finish
from tests.harness.partition_log import PartitionLogHarness, batch, batches_in, bytes_of
from tests.sim.files import Fault, SimulatedCrash

PRODUCERS = (7, 8, 9)


class Row(NamedTuple):
    """A batch."""

    first: int
    last: int
    data: bytes


class Producer(NamedTuple):
    """What a log must know of a producer."""

    epoch: int
    last_sequence: int
    last_offset: int
    txn_first_offset: int


class Expected:
    """What follows from the batches of a log."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.producers: dict[int, Producer] = {}
        self.transactions: list[tuple[int, int]] = []
        """First offset and marker of each; the marker of an open one is beyond all offsets."""
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, marker."""
        self.epochs: list[tuple[int, int]] = []
        for row in rows:
            self._add(row)
        self.transactions += [
            (producer.txn_first_offset, 1 << 62)
            for producer in self.producers.values()
            if producer.txn_first_offset >= 0
        ]

    def _add(self, row: Row) -> None:
        header = read_header(row.data)
        if not self.epochs or header.partition_leader_epoch > self.epochs[-1][0]:
            self.epochs.append((header.partition_leader_epoch, row.first))
        if header.producer_id < 0:
            return
        before = self.producers.get(header.producer_id, Producer(-1, -1, -1, -1))
        if header.is_control:
            [record] = iterate_records(row.data)
            if before.txn_first_offset >= 0:
                self.transactions.append((before.txn_first_offset, row.first))
                if read_control_type(record.key or b"") != COMMIT_MARKER:
                    self.aborted.append((header.producer_id, before.txn_first_offset, row.first))
            same = before.epoch == header.producer_epoch
            after = Producer(header.producer_epoch, *(before[1:3] if same else (-1, -1)), -1)
        else:
            first = before.txn_first_offset
            if first < 0 and header.is_transactional:
                first = row.first
            after = Producer(header.producer_epoch, header.last_sequence, row.last, first)
        self.producers[header.producer_id] = after

    def last_stable_offset(self, high_watermark: int, log_start: int) -> int:
        unstable = [first for first, marker in self.transactions if marker >= high_watermark]
        return min(high_watermark, max(min(unstable, default=high_watermark), log_start))


class Model:
    """A leader's log, a follower's, and what must be in them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        config: dict[str, Any] = {
            "internal_segment_bytes": self.chance.choice((3_000, 12_000, 50_000)),
            "index_interval_bytes": self.chance.choice((0, 200, 1_000, 4_096)),
            "segment_ms": self.chance.choice((10_000, 10**9)),
        }
        self.leader_side = PartitionLogHarness(seed=seed, is_replicated=True, **config)
        self.harness = PartitionLogHarness(seed=seed + 1, is_replicated=True, **config)
        self.leader = self.leader_side.create()
        self.log = self.harness.create()
        self.leader_rows: list[Row] = []
        self.rows: list[Row] = []
        """Of the follower's log, also those below its log start offset that its producers come from."""
        self.possible: list[Row] = []
        """What a crash in the present step may leave besides: batches being appended, or being cut."""
        self.beginning: int | None = None
        """At which offset the log is to begin anew in the present step."""
        self.has_lost_power = False
        self.end = 0
        self.epoch = 0
        self.work: tuple[FlushWork, bool] | None = None
        """A flush that is under way, and whether its thread is through."""
        self.readers: list[tuple[FileRange, bytes, int]] = []
        """Ranges of the follower's log that somebody holds, with what they held, and how much of that is left."""

    # What the leader does.

    def produce(self) -> None:
        known = Expected(self.leader_rows).producers
        producer_id = self.chance.choice((-1, -1, *PRODUCERS))
        before = known.get(producer_id)
        values = [
            self.chance.randbytes(self.chance.choice((1, 50, 600)))
            for _ in range(self.chance.choice((1, 1, 3)))
        ]
        codec = self.chance.choice((0, 0, 1, 3))
        timestamp = self.leader_side.clock.ms
        if before is not None and before.txn_first_offset >= 0 and self.chance.random() < 0.4:
            sent = end_transaction_marker(
                commit=self.chance.random() < 0.5,
                coordinator_epoch=0,
                producer_id=producer_id,
                producer_epoch=before.epoch,
                timestamp=timestamp,
            )
        else:
            epoch, sequence = (0, 0) if before is None else (before.epoch, before.last_sequence + 1)
            is_open = before is not None and before.txn_first_offset >= 0
            if not is_open and self.chance.random() < 0.1:
                epoch, sequence = epoch + 1, 0
            sent = batch(
                values,
                timestamp=timestamp,
                producer=(-1, -1, -1) if producer_id < 0 else (producer_id, epoch, sequence),
                transactional=producer_id >= 0 and (is_open or self.chance.random() < 0.5),
                codec=codec,
            )
        origin = AppendOrigin.COORDINATOR if read_header(sent).is_control else AppendOrigin.CLIENT
        result = self.leader.append(sent, leader_epoch=self.epoch, origin=origin)
        assert result.must_wait
        assert not result.duplicate
        self.leader_rows.append(Row(result.base_offset, result.last_offset, bytes(sent)))

    def elect(self) -> None:
        """Another leader: its log has what this one's has up to some offset, and its epoch is higher."""
        offsets = [row.first for row in self.leader_rows if row.first >= self.leader.log_start_offset]
        offsets = [
            offset for offset in offsets if offset >= self.leader.high_watermark or self.chance.random() < 0.1
        ]
        if offsets and self.chance.random() < 0.8:
            offset = self.chance.choice(offsets)
            truncate_to(self.leader, offset)
            self.leader_rows = [row for row in self.leader_rows if row.last < offset]
        self.epoch += 1
        self.leader.become_leader(self.epoch)
        self.agree()

    def delete_records(self) -> None:
        self.leader.delete_records(
            self.chance.randint(self.leader.log_start_offset, self.leader.high_watermark)
        )

    # What the follower does.

    def agree(self) -> None:
        """Cut what the leader does not have, as its epochs tell (KIP-101, KIP-279)."""
        log = self.log
        while log.log_end_offset > 0 and log.latest_epoch >= 0:
            epoch, end = self.leader.end_offset_for_epoch(log.latest_epoch)
            if epoch < 0:
                self.begin_anew(self.leader.log_start_offset)
                break
            if epoch == log.latest_epoch and end >= log.log_end_offset:
                break
            mine = log.end_offset_for_epoch(epoch)
            before = log.log_end_offset, log.latest_epoch
            self.truncate_to(min(end, log.log_end_offset if mine[0] < 0 else mine[1]))
            if (log.log_end_offset, log.latest_epoch) == before:
                break
        if log.log_end_offset > self.leader.log_end_offset:
            self.truncate_to(self.leader.log_end_offset)
        ours = {row.first: row for row in self.leader_rows}
        start = max(log.log_start_offset, self.leader.log_start_offset)
        for row in self.rows:
            assert row.last < start or ours[row.first] == row, "epochs did not tell where the logs part"

    def truncate_to(self, offset: int) -> None:
        kept = [row for row in self.rows if row.last < offset]
        self.possible = self.rows[len(kept) :]
        truncate_to(self.log, offset)
        straddling = [row.first for row in self.possible if row.first < offset]
        self.cut(kept, min(self.end, *straddling, offset))

    def cut(self, kept: list[Row], end: int) -> None:
        self.rows, self.possible, self.beginning, self.end = kept, [], None, end
        self.readers = [(held, data, min(left, self._left(held))) for held, data, left in self.readers]

    def _left(self, held: FileRange) -> int:
        """Bytes of a range that the log still has."""
        for segment in self.log.segments:
            if segment.file is held.file:
                return max(0, segment.size - held.position)
        return held.size  # the whole segment was cut: its file stays until it is deleted

    def truncate_somewhere(self) -> None:
        offset = self.chance.randint(self.log.log_start_offset, self.end)
        if self.rows and self.chance.random() < 0.5:
            offset = max(self.chance.choice(self.rows).first, self.log.log_start_offset)
        self.truncate_to(offset)

    def begin_anew(self, offset: int) -> None:
        self.possible, self.beginning = self.rows, offset
        truncate_fully_and_start_at(self.log, offset)
        self.cut([], offset)

    def begin_anew_somewhere(self) -> None:
        self.begin_anew(self.chance.randint(self.leader.log_start_offset, self.leader.log_end_offset))

    def follow_log_start(self) -> None:
        offset = self.leader.log_start_offset
        if offset > self.end:
            self.possible, self.beginning = self.rows, offset
        follow_log_start(self.log, offset)
        if offset > self.end:
            self.cut([], offset)

    def fetched(self) -> bytes:
        if not self.leader.log_start_offset <= self.end < self.leader.log_end_offset:
            return b""
        limit = self.chance.choice((100, 700, 4_000))
        return bytes_of(self.leader.read(self.end, limit, minimum_one=True, up_to=self.leader.log_end_offset))

    def fetch(self) -> None:
        data = self.fetched()
        whole = [Row(*row) for row in batches_in(data)]
        self.possible = whole
        if whole and whole[0].first < self.end:
            # Where the leader's log starts within a batch, an empty log begins with that batch.
            assert self.log.log_start_offset == self.log.log_end_offset
        append_as_follower(self.log, data, self.epoch)
        self.take(whole)
        self.follow_log_start()
        self.log.advance_high_watermark(self.leader.high_watermark)

    def take(self, rows: list[Row]) -> None:
        self.rows += rows
        self.possible = []
        self.end = rows[-1].last + 1 if rows else self.end

    def fetch_to_full_disk(self) -> None:
        data = self.fetched()
        whole = [Row(*row) for row in batches_in(data)]
        if not whole or whole[0].first < self.end:
            return
        fault = Fault("write", errno.ENOSPC, after_bytes=self.chance.randint(0, 2_000), times=1)
        self.harness.disk.faults.append(fault)
        self.possible = whole
        try:
            append_as_follower(self.log, data, self.epoch)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017
        self.harness.disk.faults.clear()
        assert not self.log.offline
        end = self.log.log_end_offset
        self.take([row for row in whole if row.last < end])
        self.end = end  # or the first offset of the batch that found no room, after a gap

    def fetch_what_is_damaged(self) -> None:
        data = bytearray(self.fetched())
        rows = batches_in(bytes(data))
        if not rows:
            return
        before = self.log.log_end_offset, self.log.size
        if self.chance.random() < 0.5:
            data[self.chance.randrange(21, len(rows[0][2]))] ^= 1
        else:
            data[: len(rows[0][2])] = rows[0][2] * 2  # twice the same offsets
        with pytest.raises(KafkaError):
            append_as_follower(self.log, data, self.epoch)
        assert before == (self.log.log_end_offset, self.log.size)

    def move_watermark(self) -> None:
        """The leader moves its watermark over what the follower has, as if nobody else counted."""
        known = min(self.end, self.leader.log_end_offset)
        ends = [row.last + 1 for row in self.leader_rows if row.last < known]
        if ends:
            self.leader.advance_high_watermark(self.chance.choice(ends))

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        """A step of a flush: it begins, its thread works, the loop learns of it. Other things happen in between."""
        if self.work is None:
            work = self.log.prepare_flush()
            self.work = None if work is None else (work, False)
        elif not self.work[1]:
            self.work[0].run()
            self.work = (self.work[0], True)
        else:
            self.log.flushed(self.work[0])
            self.work = None

    def checkpoint(self) -> None:
        self.harness.checkpoint(self.log)

    def hold(self) -> None:
        """Somebody begins to read up to the end, as a consumer with replica id -2."""
        if self.log.log_start_offset < self.end:
            offset = self.chance.randint(self.log.log_start_offset, self.end - 1)
            read = self.log.read(offset, 4_000, minimum_one=True, up_to=self.end)
            if isinstance(read.records, FileRange):
                self.readers.append((read.records, read.records.read(), read.records.size))

    def let_go(self) -> None:
        for held, data, left in self.readers:
            assert held.read()[:left] == data[:left]
            held.release()
        self.readers.clear()

    def pass_time(self) -> None:
        self.leader_side.clock.ms += self.chance.randint(0, 9_000)
        self.harness.clock.ms = self.leader_side.clock.ms

    def restart(self) -> None:
        self.let_go()
        while self.work is not None:
            self.flush()
        self.log.close()
        self.harness.delete_scheduled()
        self.harness.checkpoint(self.log)
        watermark = self.log.high_watermark
        self.log = self.harness.open()
        assert self.log.high_watermark == watermark
        self.check()

    STEPS = (
        produce,
        fetch,
        move_watermark,
        elect,
        delete_records,
        truncate_somewhere,
        begin_anew_somewhere,
        fetch_to_full_disk,
        fetch_what_is_damaged,
        roll,
        flush,
        checkpoint,
        hold,
        let_go,
        pass_time,
        restart,
    )
    WEIGHTS = (30, 24, 10, 2, 1, 3, 0.3, 2, 2, 2, 8, 4, 3, 1, 4, 1)

    def step(self) -> None:
        self.chance.choices(self.STEPS, self.WEIGHTS)[0](self)

    # Crashes.

    def crash(self, kind: Literal["process", "power"], flushed: int) -> None:
        """The follower crashes in the middle of a step; all below ``flushed`` must be there afterwards."""
        harness = self.harness
        self.work, self.readers = None, []
        harness.disk.faults.clear()
        harness.disk.crash(kind)
        harness.scheduled.clear()
        start = harness.saved_log_start
        self.log = log = harness.recover(harness.recovery_point, step=self.chance.choice((1, 1_000, 1 << 20)))
        assert log.high_watermark == min(
            max(harness.high_watermark, log.log_start_offset), log.log_end_offset
        )
        found = rows_of(log)
        allowed = {*self.rows, *self.possible}
        assert all(row in allowed for row in found), "what was cut is there again"
        lost = [row for row in self.rows if row.last >= max(start, log.log_start_offset) and row not in found]
        if self.possible and self.possible[0] in self.rows:  # a truncation was under way
            lost = [row for row in lost if row not in self.possible]
        assert not lost or (kind == "power" and lost[0].last >= flushed)
        self.rows = [row for row in self.rows if row.last < log.log_start_offset] + found
        self.possible = []
        self.end = log.log_end_offset
        if self.beginning is not None:
            self.begin_anew(self.beginning)
        self.follow_log_start()  # which may be lost, but not what was cut of the epochs
        self.has_lost_power |= kind == "power"
        self.check()
        # The manager's part: what was lost is claimed by no checkpoint.
        harness.recovery_point = min(harness.recovery_point, self.end)
        harness.high_watermark = min(harness.high_watermark, self.end)
        self.agree()

    # What must be true.

    def check(self) -> None:
        log = self.log
        rows = rows_of(log)
        assert rows == [row for row in self.rows if row.last >= log.log_start_offset]
        assert log.log_end_offset == self.end
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert log.size == sum(segment.size for segment in log.segments)
        assert log.unflushed_bytes >= 0
        start = log.log_start_offset
        everything = [Expected(self.rows)]
        if self.has_lost_power:
            # A snapshot may be lost that knew of batches which are deleted.
            base = log.segments[0].base_offset
            everything.append(Expected([row for row in self.rows if row.first >= base]))
        for producer_id in PRODUCERS:
            entry = log.producers.producers.get(producer_id)
            found = (
                None
                if entry is None
                else Producer(
                    entry.producer_epoch,
                    entry.last_sequence,
                    entry.to_snapshot().last_offset,
                    entry.txn_first_offset,
                )
            )
            assert found in [expected.producers.get(producer_id) for expected in everything]
        assert log.last_stable_offset in [
            expected.last_stable_offset(log.high_watermark, start) for expected in everything
        ]
        aborted = [
            (row.producer_id, row.first_offset, row.last_offset)
            for row in log.aborted_transactions(start, self.end)
            if row.last_offset >= start
        ]
        markers = {row[2] for row in aborted}
        assert markers <= {row[2] for row in everything[0].aborted}
        assert markers >= {row[2] for row in everything[-1].aborted if row[2] >= start}
        assert all(any(row in expected.aborted for expected in everything) for row in aborted)
        held = [(epoch, offset) for epoch, offset in log.epochs.entries() if offset < self.end]
        assert held == clipped(everything[0].epochs, start) or not rows
        self.check_reads()

    def check_reads(self) -> None:
        log = self.log
        held = {offset for row in self.rows for offset in range(row.first, row.last + 1)}
        for offset in range(log.log_start_offset, self.end):
            if offset in held:
                data = bytes_of(log.read(offset, 1, minimum_one=True, up_to=self.end))
                first, last, _ = batches_in(data)[0]
                assert first <= offset <= last
        stamps = [
            (read_header(row.data).max_timestamp, row.last)
            for row in self.rows
            if row.last >= log.log_start_offset
        ]
        if stamps:
            latest = finish(log.max_timestamp())
            assert latest is not None
            assert latest.timestamp == max(stamps)[0] or latest.offset < log.log_start_offset


def rows_of(log: PartitionLog) -> list[Row]:
    """What the files of a log hold from the log start offset on."""
    found = []
    for segment in log.segments:
        found += [Row(*row) for row in batches_in(segment.file.pread(segment.size, 0))]
    return [row for row in found if row.last >= log.log_start_offset]


def clipped(epochs: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """The epochs of a log that starts at ``start``."""
    before = [epoch for epoch, offset in epochs if offset <= start]
    return [*((epoch, start) for epoch in before[-1:]), *(row for row in epochs if row[1] > start)]


@pytest.mark.parametrize("seed", range(25))
def test_a_follower_has_what_its_leader_has(seed: int) -> None:
    model = Model(seed)
    for at in range(300):
        model.step()
        if not at % 10:
            model.check()
    model.check()
    model.restart()


@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("seed", range(25))
def test_a_follower_crashes(kind: Literal["process", "power"], seed: int) -> None:
    model = Model(1_000 + seed)
    for _ in range(6):
        flushed = model.log.recovery_point
        model.harness.disk.crash_at = model.harness.disk.steps + model.chance.randint(1, 150)
        try:
            for _ in range(300):
                model.step()
                flushed = model.log.recovery_point
        except SimulatedCrash:
            pass
        model.crash(kind, flushed)
    model.harness.disk.crash_at = None
    model.restart()
