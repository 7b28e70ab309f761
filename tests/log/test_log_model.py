"""Random work on one partition, with crashes, against a plain list of batches."""

from __future__ import annotations

import errno
import random
from typing import Literal

import pytest

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import finish
from tests.harness.partition_log import (
    DIRECTORY,
    PartitionLogHarness,
    batch,
    batches_in,
    bytes_of,
    flush,
    read_all,
    stamped,
)
from tests.sim.files import Fault, SimulatedCrash

Row = tuple[int, int, bytes]
"""First offset, last offset, bytes."""


class Model:
    """The log under test and what must be in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.harness = PartitionLogHarness(
            seed=seed,
            internal_segment_bytes=self.chance.choice((5_200, 12_000, 50_000)),
            index_interval_bytes=self.chance.choice((0, 200, 1_000, 4_096)),
            segment_ms=self.chance.choice((10_000, 10**9)),
        )
        self.log = self.harness.create()
        self.rows: list[Row] = []
        self.timestamps: list[int] = []
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, list[tuple[bytes, int]]] = {}
        self.checkpointed = 0
        self.end_offset = 0
        self.in_flight: bytes | None = None

    @property
    def end(self) -> int:
        return self.end_offset

    # What happens.

    def append(self) -> None:
        count = self.chance.choice((1, 1, 1, 2, 5))
        size = self.chance.choice((1, 50, 300, 1_000))
        values = [self.chance.randbytes(size) for _ in range(count)]
        producer = (-1, -1, -1)
        producer_id = self.chance.choice((-1, -1, 7, 8))
        if producer_id >= 0:
            producer = (producer_id, 0, self.sequences.get(producer_id, 0))
        sent = bytes(batch(values, timestamp=self.harness.clock.ms, producer=producer))
        base = self.end
        self.in_flight = stamped(sent, base, self.epoch)
        result = self.log.append(bytearray(sent), leader_epoch=self.epoch)
        assert (result.base_offset, result.last_offset, result.duplicate) == (base, base + count - 1, False)
        self.keep(self.in_flight, sent, producer)

    def keep(self, stored: bytes, sent: bytes, producer: tuple[int, int, int]) -> None:
        first, last, _ = batches_in(stored)[0]
        self.rows.append((first, last, stored))
        self.end_offset = last + 1
        if producer[0] >= 0:
            self.sequences[producer[0]] = producer[2] + last - first + 1
            self.sent.setdefault(producer[0], []).append((sent, first))
        self.in_flight = None

    def append_to_full_disk(self) -> None:
        fault = Fault("write", errno.ENOSPC, after_bytes=self.chance.randint(0, 100), times=1)
        self.harness.disk.faults.append(fault)
        before = self.end
        try:
            self.append()
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017
        self.harness.disk.faults.clear()
        self.in_flight = None
        assert not self.log.offline
        assert self.log.log_end_offset == self.end >= before

    def retry(self) -> None:
        """A producer sends one of its last five batches again."""
        for past in filter(None, self.sent.values()):
            sent, base = self.chance.choice(past[-5:])
            if base >= self.log.log_start_offset and past[-1][1] < self.log.log_end_offset:
                result = self.log.append(bytearray(sent), leader_epoch=self.epoch)
                assert (result.duplicate, result.base_offset) == (True, base)

    def read(self) -> None:
        if self.log.log_start_offset == self.end:
            return
        offset = self.chance.randint(self.log.log_start_offset, self.end - 1)
        limit = self.chance.choice((1, 100, 2_000, 10**6))
        data = bytes_of(self.log.read(offset, limit, minimum_one=True, up_to=self.log.high_watermark))
        at = next((at for at, row in enumerate(self.rows) if row[1] >= offset), None)
        if at is None:  # the end of the log was lost with the power, but not that it was there
            assert data == b""
            return
        expected = b"".join(row[2] for row in self.rows[at:])
        assert data == expected[: len(data)]
        assert len(data) >= min(len(self.rows[at][2]), len(expected))
        assert len(data) <= max(limit, len(self.rows[at][2]))

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        flush(self.log)
        if self.chance.random() < 0.7:
            # The manager writes log start offsets before recovery points.
            self.harness.saved_log_start = self.log.log_start_offset
            self.checkpointed = self.log.recovery_point

    def pass_time(self) -> None:
        self.harness.clock.ms += self.chance.randint(0, 9_000)

    def delete_oldest(self) -> None:
        self.log.delete_oldest(self.chance.randint(1, len(self.log.segments)), "test")
        self.forget_before(self.log.log_start_offset)

    def delete_records(self) -> None:
        offset = self.chance.randint(self.log.log_start_offset, self.log.high_watermark)
        assert self.log.delete_records(offset) == offset
        self.forget_before(offset)

    def forget_before(self, offset: int) -> None:
        if self.rows:
            self.rows = [row for row in self.rows if row[1] >= offset]

    def restart(self) -> None:
        self.log.close()
        self.harness.delete_scheduled()
        self.harness.saved_log_start = self.log.log_start_offset
        self.log = self.harness.open()
        self.log.become_leader(self.epoch)
        self.checkpointed = self.log.recovery_point
        self.check()

    STEPS = (
        append,
        append,
        append,
        append,
        append,
        append,
        append_to_full_disk,
        retry,
        read,
        read,
        roll,
        flush,
        pass_time,
        delete_oldest,
        delete_records,
        restart,
    )
    WEIGHTS = (9, 9, 9, 9, 9, 9, 2, 6, 6, 6, 2, 4, 6, 1, 1, 2)

    def step(self) -> None:
        self.chance.choices(self.STEPS, self.WEIGHTS)[0](self)

    # Crashes.

    def crash(self, kind: Literal["process", "power"], flushed: int) -> None:
        in_flight = self.in_flight
        self.in_flight = None
        self.harness.disk.faults.clear()
        self.harness.disk.crash(kind)
        self.harness.scheduled.clear()
        start_before = self.log.log_start_offset
        self.log = log = self.harness.recover(self.checkpointed, step=self.chance.choice((1, 1_000, 1 << 20)))
        self.forget_before(start_before)
        possible = {row[0]: row for row in self.rows}
        if in_flight is not None:
            row = batches_in(in_flight)[0]
            possible[row[0]] = row
        found = [row for row in batches_in(read_all(log)) if row[1] >= start_before]
        assert all(possible[row[0]] == row for row in found)
        assert log.log_end_offset >= flushed
        kept = {row[0] for row in found}
        lost = [row for row in self.rows if row[0] not in kept]
        assert not lost or (kind == "power" and lost[0][0] >= flushed)
        assert not lost or self.harness.recovery.truncated or lost[0][1] >= log.log_end_offset
        self.lost = {row[0] for row in lost}
        self.rows = found
        self.end_offset = log.log_end_offset
        # What the dead process deleted may be there again, or what it was about to delete gone.
        assert log.log_start_offset <= max(start_before, log.log_end_offset)
        if log.log_start_offset < start_before:
            log.delete_oldest(sum(s.base_offset < start_before for s in log.segments[1:]), "again")
            if log.log_start_offset < start_before:
                log.delete_records(min(start_before, log.log_end_offset))
        self.forget_before(log.log_start_offset)
        self.reset_producers()
        self.epoch += 1
        log.become_leader(self.epoch)
        self.checkpointed = min(self.checkpointed, log.log_end_offset)
        self.check()

    def reset_producers(self) -> None:
        """Producers know after a crash only what was answered: begin them anew."""
        for producer_id in (7, 8):
            self.sent.setdefault(producer_id, [])
            lost = self.lost
            kept = [(sent, base) for sent, base in self.sent[producer_id] if base not in lost]
            entry = self.log.producers.producers.get(producer_id)
            self.sequences[producer_id] = 0 if entry is None else entry.last_sequence + 1
            gone = len(kept) < len(self.sent[producer_id])
            if gone or entry is None or (kept and kept[-1][1] != entry.batches[-1].first_offset):
                kept = []
            self.sent[producer_id] = kept

    # What must be true.

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        assert read_all(log) == b"".join(row[2] for row in self.rows)
        assert log.size == sum(segment.size for segment in log.segments)
        held = {offset for first, last, _ in self.rows for offset in range(first, last + 1)}
        for offset in range(log.log_start_offset, max(held, default=-1) + 1):
            data = bytes_of(log.read(offset, 1, minimum_one=True, up_to=log.high_watermark))
            first, last, _ = batches_in(data)[0]
            assert offset <= last
            assert first <= offset or offset not in held
        self.check_times()
        for segment in log.segments:
            assert sorted(segment.offset_index.all()) == list(segment.offset_index.all())
        assert log.end_offset_for_epoch(self.epoch) == (self.epoch, log.log_end_offset)

    def check_times(self) -> None:
        stamps = [
            (int.from_bytes(data[35:43], "big") - (last - first) + at, first + at)
            for first, last, data in self.rows
            for at in range(last - first + 1)
        ]
        stamps = [row for row in stamps if row[1] >= self.log.log_start_offset]
        latest = finish(self.log.max_timestamp())
        if stamps:
            assert latest is not None
            # Until its segment is deleted, a record below the log start offset counts, as in Kafka.
            assert latest.timestamp == max(stamps)[0] or latest.offset < self.log.log_start_offset
            for wanted, _ in self.chance.sample(stamps, min(5, len(stamps))):
                found = finish(self.log.offset_for_timestamp(wanted))
                assert found is not None
                assert found.offset == min(offset for time, offset in stamps if time >= wanted)


@pytest.mark.parametrize("seed", range(25))
def test_restarts_keep_everything(seed: int) -> None:
    model = Model(seed)
    for _ in range(150):
        model.step()
    model.check()
    model.restart()


@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("seed", range(25))
def test_crashes(kind: Literal["process", "power"], seed: int) -> None:
    model = Model(1_000 + seed)
    for _ in range(8):
        flushed = model.log.recovery_point
        model.harness.disk.crash_at = model.harness.disk.steps + model.chance.randint(1, 120)
        try:
            for _ in range(200):
                model.step()
                flushed = model.log.recovery_point
        except SimulatedCrash:
            pass
        model.crash(kind, flushed)
    model.restart()
    assert model.harness.disk.exists(DIRECTORY)
