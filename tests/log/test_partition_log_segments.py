"""PartitionLog: rolling, the files of a partition, and which segments go."""

from __future__ import annotations

import errno
import struct

import pytest

from oncelog.broker.log.file_names import CLEANED_SUFFIX
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.segment import Segment
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.partition_log import (
    START_MS,
    TOPIC_ID,
    PartitionLogHarness,
    batch,
    batches_in,
    bytes_of,
    fill,
    flush,
    read_all,
    refused,
    stamped,
)
from tests.sim.files import Fault, SimulatedCrash


def test_a_roll_that_fails_leaves_nothing_behind() -> None:
    """Neither at the segment's files nor at the snapshot; the log goes on in the old segment."""
    for operation, what in (
        ("open", ".log"),
        ("write", ".snapshot"),
        ("open", ".snapshot"),
        ("write", "index"),
    ):
        harness = PartitionLogHarness(internal_segment_bytes=1_000, index_interval_bytes=0)
        log = harness.create()
        for _ in range(9):
            log.append(batch((bytes(30),)), leader_epoch=0)
        fault = Fault(operation, errno.ENOSPC, lambda path, what=what: path.endswith(what))  # type: ignore[misc, arg-type]
        harness.disk.faults.append(fault)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch((bytes(500),)))
        assert len(log.segments) == 1
        assert not log.offline
        assert [name for name in harness.disk.listdir(harness.directory) if "09." in name] == []
        assert log.append(batch((b"small",)), leader_epoch=0).base_offset == 9
        harness.disk.faults.clear()
        assert log.append(batch((bytes(500),)), leader_epoch=0).base_offset == 10
        assert [segment.base_offset for segment in log.segments] == [0, 10]
        log.close()
        assert harness.open().log_end_offset == 11


# Rolling.


def test_roll_by_size() -> None:
    log = PartitionLogHarness(internal_segment_bytes=400).create()
    size = len(batch((bytes(100),)))
    for _ in range(7):
        log.append(batch((bytes(100),)), leader_epoch=0)
    assert size * 2 <= 400 < size * 3
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, log, batch((bytes(400),)))


def test_roll_by_time_goes_by_the_first_batch() -> None:
    harness = PartitionLogHarness(segment_ms=1_000)
    log = harness.create()
    log.append(batch(timestamp=START_MS), leader_epoch=0)
    harness.clock.ms += 5_000
    log.append(batch(timestamp=START_MS + 1_000), leader_epoch=0)
    assert len(log.segments) == 1
    log.close()
    log = harness.open()
    log.append(batch(timestamp=START_MS + 1_001), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_roll_by_time_without_timestamps_goes_by_the_clock() -> None:
    harness = PartitionLogHarness(segment_ms=1_000)
    log = harness.create()
    log.append(batch(timestamp=-1), leader_epoch=0)
    harness.clock.ms += 1_001
    log.append(batch(timestamp=-1), leader_epoch=0)
    assert len(log.segments) == 2


def test_jitter_is_less_than_asked_for() -> None:
    harness = PartitionLogHarness(segment_ms=1_000, segment_jitter_ms=400)
    found = {
        PartitionLogHarness(seed=seed, segment_ms=1_000, segment_jitter_ms=400).create().active.jitter_ms
        for seed in range(30)
    }
    assert len(found) > 10
    assert all(0 <= jitter < 400 for jitter in found)
    assert harness.create().active.jitter_ms < 400


def test_roll_when_an_index_is_full() -> None:
    log = PartitionLogHarness(segment_index_bytes=40, index_interval_bytes=0).create()
    for at in range(30):
        log.append(batch(timestamp=START_MS + at), leader_epoch=0)
    assert len(log.segments) > 5
    assert all(segment.time_index.entries <= 3 for segment in log.segments)
    assert read_all(log).count(b"value") == 30


def test_roll_before_offsets_outgrow_the_index() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    log.log_end_offset = log.high_watermark = 2**31 - 1
    log.append(batch(), leader_epoch=0)
    assert len(log.segments) == 1
    log.append(batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_the_files_of_a_partition() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    for _ in range(4):
        log.append(batch((bytes(100),)), leader_epoch=3)
    log.close()
    name = "00000000000000000002"
    assert harness.disk.listdir(harness.directory) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        f"{name}.index",
        f"{name}.log",
        f"{name}.snapshot",
        f"{name}.timeindex",
        "00000000000000000004.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert harness.disk.read_bytes(harness.path("leader-epoch-checkpoint")) == b"0\n1\n3 0\n"
    metadata = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert harness.disk.read_bytes(harness.path("partition.metadata")) == metadata
    # The time index ends with the latest timestamp, as a roll and a close leave it.
    assert harness.disk.read_bytes(harness.path(f"{name}.timeindex")) == struct.pack(">qi", START_MS, 0)
    assert harness.open().topic_id == TOPIC_ID


def test_index_entries_do_not_pile_up_in_memory() -> None:
    harness = PartitionLogHarness(index_interval_bytes=0)
    log = harness.create()
    for at in range(1_300):
        log.append(batch(timestamp=START_MS + at), leader_epoch=0)
        assert log.active.offset_index.tail_bytes <= 4096
    assert harness.disk.size(harness.path("00000000000000000000.index")) >= 2 * 4096
    assert harness.disk.size(harness.path("00000000000000000000.timeindex")) >= 2 * 4096
    assert log.active.offset_index.entries == 1_299


# The log's start.


def test_delete_records() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    fill(log)
    log.append(batch(), leader_epoch=2)
    assert log.delete_records(4) == 4
    assert harness.saved_log_start == 4
    assert log.delete_records(2) == 4
    assert log.epoch_of(3) == -1
    assert log.epochs.entries() == [(0, 4), (2, 10)]
    with pytest.raises(KafkaError) as error:
        log.delete_records(12)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(11) == 11
    log.close()
    log = harness.open()
    assert (log.log_start_offset, log.log_end_offset) == (11, 11)
    assert log.append(batch(), leader_epoch=2).base_offset == 11


def test_delete_records_is_not_answered_before_it_is_durable() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    fill(log)

    def fail(failing: PartitionLog) -> None:
        raise OSError(errno.EIO, "checkpoint")

    harness.env.save_log_start = fail
    with pytest.raises(KafkaError) as error:
        log.delete_records(4)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_start_offset == 0


def test_delete_oldest() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    bases = [segment.base_offset for segment in log.segments]
    log.delete_oldest(2, "test")
    assert log.log_start_offset == bases[2]
    assert read_all(log) == b"".join(rows[bases[2] :])
    assert log.size == len(read_all(log))
    gone = [path for path in harness.scheduled if path.endswith(".log.deleted")]
    assert len(gone) == 2
    assert all(harness.disk.exists(path) for path in harness.scheduled)
    log.delete_oldest(len(log.segments), "test")
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    assert [segment.base_offset for segment in log.segments] == [10]
    log.delete_oldest(1, "test")  # an empty one stays
    assert [segment.base_offset for segment in log.segments] == [10]


# What the cleaner does.


def cleaned(log: PartitionLog, old: list[Segment], keep: set[int]) -> Segment:
    """A segment with some of the batches of others, as the cleaner makes it."""
    new = Segment(
        log.env.files,
        log.directory,
        old[0].base_offset,
        index_interval_bytes=0,
        now_ms=0,
        new=True,
        suffix=CLEANED_SUFFIX,
    )
    for segment in old:
        data = segment.file.pread(segment.size, 0)
        for first, last, stored in batches_in(data):
            if first in keep:
                new.append(stored, len(stored), last, START_MS)
    new.seal()
    for file in (new.file, *new.unsynced_indexes()):
        file.fsync()
    new.synced_size = new.size
    return new


def test_replaced_segments() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400, cleanup_policy="compact")
    log = harness.create()
    rows = []
    for at in range(12):
        sent = batch((bytes(50),), keys=(b"k",))
        rows.append(stamped(sent, at, 0))
        log.append(sent, leader_epoch=0)
    old = log.segments[:2]
    reading = log.read(0, 1_000_000, minimum_one=True, up_to=12)
    assert bytes_of(log.read(0, 1_000_000, minimum_one=True, up_to=1)) == rows[0]
    end = log.segments[2].base_offset
    log.replace_segments(cleaned(log, old, {1, end - 1}), old)
    expected = rows[1] + rows[end - 1] + b"".join(rows[end:])
    assert read_all(log) == expected
    assert log.size == len(expected)
    assert bytes_of(reading).startswith(rows[0])
    harness.delete_scheduled()
    for offset in (0, 1):
        assert batches_in(bytes_of(log.read(offset, 1, minimum_one=True, up_to=12)))[0][0] == 1
    log.close()
    harness.delete_scheduled()
    assert read_all(harness.open()) == expected
    assert not [
        name
        for name in harness.disk.listdir(harness.directory)
        if not name.endswith(("index", "log", "snapshot", "checkpoint", "metadata"))
    ]


@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_while_segments_are_replaced(kind: str) -> None:
    """Whatever step it dies in: there are the old segments or the new one, never less and never both."""
    for step in range(60):
        harness = PartitionLogHarness(seed=step, internal_segment_bytes=400, cleanup_policy="compact")
        log = harness.create()
        rows = []
        for at in range(12):
            sent = batch((bytes(50),), keys=(b"k",))
            rows.append(stamped(sent, at, 0))
            log.append(sent, leader_epoch=0)
        flush(log)
        old = log.segments[:2]
        end = log.segments[2].base_offset
        harness.disk.crash_at = harness.disk.steps + step
        try:
            log.replace_segments(cleaned(log, old, {1, end - 1}), old)
            harness.delete_scheduled()
            done = True
        except SimulatedCrash:
            done = False
        harness.disk.crash(kind)  # type: ignore[arg-type]
        harness.scheduled.clear()
        log = harness.recover(log.recovery_point)
        after = rows[1] + rows[end - 1] + b"".join(rows[end:])
        assert read_all(log) in (b"".join(rows), after), step
        assert not harness.recovery.cuts
        if done:
            assert step > 20
            break
    else:
        raise AssertionError("it never came to its end")
