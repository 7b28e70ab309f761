"""What a start makes of a partition's directory."""

from __future__ import annotations

import struct

import pytest

from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.log.truncation import truncate_to
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.crc import crc32c
from oncelog.wire.steps import finish
from tests.harness.partition_log import (
    DIRECTORY,
    START_MS,
    TOPIC_ID,
    PartitionLogHarness,
    batch,
    batches_in,
    flush,
    read_all,
    stamped,
)
from tests.log.filled_logs import FIRST, fill, indexes_of


def overwrite(harness: PartitionLogHarness, name: str, data: bytes, at: int) -> None:
    file = harness.disk.open(harness.path(name))
    file.pwrite(data, at)
    file.close()


# After a crash.


@pytest.mark.parametrize("at", [0, 7, 8, 11, 12, 16, 17, 20, 21, 23, 40, 61, 148])
@pytest.mark.parametrize("batch_number", [0, 4, 11])
def test_cut_at_the_first_bad_byte(batch_number: int, at: int) -> None:
    harness = PartitionLogHarness(index_interval_bytes=0)
    rows = fill(harness.create())
    position = sum(map(len, rows[:batch_number]))
    at = min(at, len(rows[batch_number]) - 1)
    before = harness.disk.read_bytes(harness.path(f"{FIRST}.log"))[position + at]
    overwrite(harness, f"{FIRST}.log", bytes([before ^ 0x80]), position + at)
    log = harness.recover()
    survives = 12 <= at < 16  # the leader epoch is not covered by the CRC
    if survives:
        assert log.log_end_offset == 12
        return
    if at < 8 and at:  # an offset that is higher than it was, but nobody can tell
        assert log.log_end_offset > 12 or log.log_end_offset == batch_number
        return
    assert read_all(log) == b"".join(rows[:batch_number])
    assert (log.log_end_offset, log.high_watermark) == (batch_number, batch_number)
    cut = harness.recovery.cuts[0]
    assert (cut.path, cut.position) == (harness.path(f"{FIRST}.log"), position)
    assert cut.bytes == sum(map(len, rows[batch_number:]))
    assert harness.recovery.truncated
    assert harness.disk.size(harness.path(f"{FIRST}.log")) == position
    assert log.append(batch(), leader_epoch=1).base_offset == batch_number


@pytest.mark.parametrize("left", [1, 60, 61, 100])
def test_a_torn_end(left: int) -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    rows = fill(log)
    harness.disk.open(harness.path(f"{FIRST}.log")).truncate(log.size - len(rows[-1]) + left)
    assert read_all(harness.recover()) == b"".join(rows[:-1])
    assert [cut.bytes for cut in harness.recovery.cuts] == [left]


def test_nothing_to_cut_is_nothing_lost() -> None:
    harness = PartitionLogHarness()
    rows = fill(harness.create())
    log = harness.recover()
    assert read_all(log) == b"".join(rows)
    assert (harness.recovery.cuts, harness.recovery.truncated) == ([], False)
    assert log.topic_id == TOPIC_ID


def test_what_is_behind_a_cut_goes() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    sizes = [segment.size for segment in log.segments]
    overwrite(harness, f"{bases[2]:020d}.log", b"x", sizes[2] - 1)
    log = harness.recover()
    assert log.log_end_offset == bases[3] - 1
    assert read_all(log) == b"".join(rows[: bases[3] - 1])
    assert [cut.bytes for cut in harness.recovery.cuts] == [len(rows[0]), *sizes[3:]]
    assert [segment.base_offset for segment in log.segments] == bases[:3]
    assert max(log.snapshots.offsets) == log.log_end_offset
    harness.delete_scheduled()
    assert not [name for name in harness.disk.listdir(DIRECTORY) if name.startswith(f"{bases[4]:020d}")]


def test_only_what_is_above_the_recovery_point_is_checked() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    rows = fill(log)
    flush(log)
    rows += fill(log, 3)
    overwrite(harness, f"{FIRST}.log", b"x", 100)
    recovered = harness.recover(log.recovery_point)
    assert harness.recovery.cuts == []
    assert harness.recovery.checked_bytes == sum(map(len, rows[12:]))
    assert recovered.log_end_offset == 15
    assert recovered.recovery_point == 12
    assert recovered.unflushed_bytes == sum(map(len, rows[12:]))


def test_indexes_are_made_again() -> None:
    for point in (0, 5, 12, 30):
        harness = PartitionLogHarness(index_interval_bytes=200, internal_segment_bytes=1_000)
        log = harness.create()
        fill(log, 30)
        flush(log)
        log.close()
        expected = [indexes_of(segment) for segment in harness.open().segments]
        assert any(expected)
        for name in harness.disk.listdir(DIRECTORY):
            if name.endswith("index") and int(name[:20]) >= point:
                harness.disk.remove(harness.path(name))
        recovered = harness.recover(point)
        recovered.active.seal()
        assert [indexes_of(segment) for segment in recovered.segments] == expected


def test_indexes_below_the_recovery_point_are_kept() -> None:
    harness = PartitionLogHarness(index_interval_bytes=200)
    log = harness.create()
    fill(log, 30)
    flush(log)
    expected = indexes_of(log.active)
    fill(log, 2)
    harness.disk.crash("process")
    for kind in ("index", "timeindex"):
        path = harness.path(f"{FIRST}.{kind}")
        file = harness.disk.open(path)
        file.append(bytes(50))  # as an index that was never synced may end
    recovered = harness.recover(30)
    assert indexes_of(recovered.active)[0][: len(expected[0])] == expected[0]
    assert len(indexes_of(recovered.active)[1]) >= len(expected[1])
    assert finish(recovered.offset_for_timestamp(START_MS + 31)) == (START_MS + 31, 31, 0)


def test_leader_epochs_come_back_from_the_batches() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    for epoch in (0, 2, 2, 5):
        log.append(batch(), leader_epoch=epoch)
    assert not harness.disk.exists(harness.path("leader-epoch-checkpoint"))
    assert harness.recover().epochs.entries() == [(0, 0), (2, 1), (5, 3)]
    harness.disk.replace(harness.path("leader-epoch-checkpoint"), b"0\n3\n0 0\n2 1\n9 100\n")
    assert harness.recover().epochs.entries() == [(0, 0), (2, 1), (5, 3)]


def test_a_recovery_comes_in_steps() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=2_000)
    rows = fill(harness.create(), 60)
    total = sum(map(len, rows))
    from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery

    recovery = PartitionRecovery(harness.env, DIRECTORY, "topic", 0, harness.config, 0, 0)
    steps = 1
    while not recovery.step(1_000):
        steps += 1
    assert total // 1_200 <= steps <= total // 1_000 + 5
    assert read_all(recovery.log) == b"".join(rows)


def test_a_large_batch_is_checked_piece_by_piece() -> None:
    harness = PartitionLogHarness(max_message_bytes=10_000_000)
    log = harness.create()
    log.append(batch((bytes(3_000_000),)), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    assert harness.recover().log_end_offset == 2
    overwrite(harness, f"{FIRST}.log", b"x", 2_500_000)
    assert harness.recover().log_end_offset == 0


def test_an_offset_that_falls() -> None:
    harness = PartitionLogHarness()
    rows = fill(harness.create(), 3)
    file = harness.disk.open(harness.path(f"{FIRST}.log"))
    file.append(rows[1])
    log = harness.recover()
    assert read_all(log) == b"".join(rows)
    assert "offset 1 after 2" in harness.recovery.cuts[0].reason


def test_an_offset_too_far_from_the_segment() -> None:
    harness = PartitionLogHarness()
    rows = fill(harness.create(), 2)
    harness.disk.open(harness.path(f"{FIRST}.log")).append(struct.pack(">q", 2**31) + rows[0][8:])
    assert harness.recover().log_end_offset == 2


def test_a_gap_between_segments() -> None:
    """Where segments are missing that were not flushed, or deleted ones came back: both sides stay, as in Kafka."""
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    second, third = (segment.base_offset for segment in log.segments[1:3])
    harness.disk.remove(harness.path(f"{second:020d}.log"))
    log = harness.recover()
    assert read_all(log) == b"".join(rows[:second] + rows[third:])
    assert (harness.recovery.truncated, harness.recovery.cuts) == (True, [])
    found = batches_in(log.read(second, 10**6, minimum_one=True, up_to=12).records.read())  # type: ignore[union-attr]
    assert found[0][0] == third


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_replica_gets_what_is_behind_a_gap_from_its_leader(lost: int) -> None:
    """A replica with a gap must not lead: it keeps what is before the gap; nothing, if its beginning is lost."""
    harness = PartitionLogHarness(is_replicated=True, internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    base = log.segments[lost].base_offset
    harness.disk.remove(harness.path(f"{base:020d}.log"))
    log = harness.recover()
    assert (log.log_start_offset, log.log_end_offset) == (0, base)
    log.advance_high_watermark(12)
    assert read_all(log) == b"".join(rows[:base])
    assert harness.recovery.truncated


@pytest.mark.parametrize("recovery_point", [12, 0], ids=["checkpointed", "no newer checkpoint"])
def test_a_replica_whose_first_segments_were_deleted_keeps_the_others(recovery_point: int) -> None:
    """The deletion makes the log start offset durable first: without it, what is left would look like a gap."""
    harness = PartitionLogHarness(is_replicated=True, internal_segment_bytes=400)
    log = harness.create()
    fill(log)
    flush(log)
    log.advance_high_watermark(12)
    log.delete_oldest(2, "test")
    start = log.log_start_offset
    log = harness.recover(recovery_point)
    assert (log.log_start_offset, log.log_end_offset) == (start, 12)


def test_compaction_leaves_gaps() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400, cleanup_policy="compact")
    log = harness.create()
    for _ in range(12):
        log.append(batch((bytes(80),), keys=(b"k",)), leader_epoch=0)
    harness.disk.remove(harness.path(f"{log.segments[1].base_offset:020d}.log"))
    harness.recover()
    assert not harness.recovery.truncated


def test_an_end_below_the_recovery_point_is_reported() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    rows = fill(log)
    flush(log)
    harness.disk.open(harness.path(f"{FIRST}.log")).truncate(sum(map(len, rows[:7])))
    assert harness.recover(12).log_end_offset == 7
    assert harness.recovery.truncated


def test_a_log_that_ends_before_it_starts() -> None:
    for recover in (True, False):
        harness = PartitionLogHarness()
        log = harness.create()
        fill(log)
        log.close()
        harness.saved_log_start = 40
        log = harness.recover(12) if recover else harness.open()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
        assert [segment.base_offset for segment in log.segments] == [40]
        assert log.append(batch(), leader_epoch=0).base_offset == 40


def test_an_empty_directory() -> None:
    for recover in (True, False):
        harness = PartitionLogHarness()
        harness.disk.makedirs(DIRECTORY)
        log = harness.recover() if recover else harness.open()
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert log.append(batch(), leader_epoch=0).base_offset == 0


def test_damaged_snapshots_are_passed_over() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    for sequence in range(12):
        log.append(batch((bytes(80),), producer=(7, 0, sequence)), leader_epoch=0)
    flush(log)
    newest = max(log.snapshots.offsets)
    overwrite(harness, f"{newest:020d}.snapshot", b"xx", 20)
    recovered = harness.recover(12)
    for sequence in range(7, 12):
        again = batch((bytes(80),), producer=(7, 0, sequence))
        assert recovered.append(again, leader_epoch=0).base_offset == sequence


# Files that belong to something unfinished.


def test_leftovers_go() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    rows = fill(log)
    log.close()
    for name in (
        "00000000000000000005.index",
        "00000000000000000005.timeindex",
        "00000000000000000005.txnindex",
        "00000000000000000003.log.deleted",
        "00000000000000000003.index.cleaned",
        "00000000000000000003.log.swap",
        "leader-epoch-checkpoint.tmp",
    ):
        harness.disk.open(harness.path(name), create=True).append(b"x" * 10)
    for log in (harness.open(), harness.recover(12)):
        assert read_all(log) == b"".join(rows)
        assert set(harness.disk.listdir(DIRECTORY)) == {
            f"{FIRST}.index",
            f"{FIRST}.log",
            f"{FIRST}.timeindex",
            "00000000000000000012.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
        }


def test_a_swap_file_takes_the_place_of_what_it_covers() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400, cleanup_policy="compact")
    log = harness.create()
    rows = []
    for at in range(12):
        sent = batch((bytes(80),), keys=(b"k",))
        rows.append(stamped(sent, at, 0))
        log.append(sent, leader_epoch=0)
    third = log.segments[2].base_offset
    flush(log)
    kept = rows[third - 1]
    harness.disk.open(harness.path(f"{FIRST}.log.swap"), create=True).append(kept)
    recovered = harness.recover(12)
    assert read_all(recovered) == kept + b"".join(rows[third:])
    assert [segment.base_offset for segment in recovered.segments][:2] == [0, third]


def test_batches_of_a_real_cleaner_can_be_recovered() -> None:
    """Batches with offsets missing inside, and one that has no records left."""
    harness = PartitionLogHarness(cleanup_policy="compact")
    harness.create()
    builder = BatchBuilder(base_offset=3, leader_epoch=0)
    builder.append(START_MS, b"k", b"v", offset=4)
    sparse = builder.build(last_offset=9)
    empty = bytearray(BatchBuilder(base_offset=10, leader_epoch=0).build(last_offset=11))
    assert struct.unpack_from(">I", empty, 17)[0] == crc32c(memoryview(empty)[21:])
    harness.disk.open(harness.path(f"{FIRST}.log")).append(sparse + empty)
    log = harness.recover()
    assert (log.log_end_offset, harness.recovery.cuts) == (12, [])
    assert read_all(log) == bytes(sparse + empty)
    assert finish(log.offset_for_timestamp(0)) == (START_MS, 4, 0)


# A loss of power after a recovery.


@pytest.mark.parametrize("seed", range(12))
def test_what_was_cut_does_not_come_back(seed: int) -> None:
    """Neither the batches behind the bad one, nor later segments, nor snapshots of what the producers wrote there."""
    harness = PartitionLogHarness(seed=seed, internal_segment_bytes=400)
    log = harness.create()
    for sequence in range(12):
        log.append(batch((bytes(80),), producer=(7, 0, sequence)), leader_epoch=0)
    flush(log)
    bases = [segment.base_offset for segment in log.segments]
    path = harness.path(f"{bases[1]:020d}.log")
    size = log.segments[1].size
    for base in bases:
        snapshot = log.snapshots.open(base)
        if snapshot is not None:
            snapshot.fsync()
            snapshot.close()
    harness.disk.sync_dir(DIRECTORY)
    file = harness.disk.open(path)
    file.pwrite(b"x", size - 1)
    file.fsync()
    end = harness.recover().log_end_offset
    assert bases[1] < end < bases[2]
    harness.disk.crash("power")
    assert harness.disk.size(path) <= size // 2
    names = [name for name in harness.disk.listdir(DIRECTORY) if name.endswith((".log", ".snapshot"))]
    assert all(int(name[:20]) <= end for name in names)


def test_segments_below_the_log_start_need_not_be_sound() -> None:
    """They were deleted before they were flushed, and are there again after a loss of power."""
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    third = log.segments[2].base_offset
    overwrite(harness, f"{FIRST}.log", bytes(100), 0)
    harness.saved_log_start = third
    log = harness.recover()
    assert (log.log_start_offset, log.log_end_offset) == (third, 12)
    assert read_all(log) == b"".join(rows[third:])
    assert (harness.recovery.cuts, harness.recovery.truncated) == ([], False)


def test_a_snapshot_says_nothing_when_batches_after_it_are_deleted() -> None:
    """The transaction that is open in it has ended since."""
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.roll()
    log.append(ended(7, commit=True), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.append(batch(), leader_epoch=0)
    flush(log)
    assert log.snapshots.offsets == [1, 2]
    overwrite(harness, f"{2:020d}.snapshot", b"x", 8)
    harness.saved_log_start = 2
    log = harness.recover(3)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (2, 3, 3)


def test_a_torn_batch_that_looks_like_an_earlier_one_is_no_producers() -> None:
    """It follows the recovery point, up to which the producer state is restored without checks."""
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(producer=(7, 0, 0)), leader_epoch=0)
    flush(log)
    log.append(batch(producer=(8, 0, 0)), leader_epoch=0)
    overwrite(harness, f"{FIRST}.log", bytes(8), len(batch()))
    log = harness.recover(1)
    assert (log.log_end_offset, list(log.producers.producers)) == (1, [7])


def test_a_torn_entry_of_an_aborted_transaction() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(ended(7), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    flush(log)
    expected = log.aborted_transactions(0, 2)
    harness.disk.open(harness.path(f"{FIRST}.txnindex")).append(bytes(34))
    recovered = harness.recover(2)
    assert list(recovered.active.txn_index.transactions()) == expected != []


@pytest.mark.parametrize("seed", range(12))
def test_a_transaction_that_was_cut_does_not_come_back(seed: int) -> None:
    """Even if it was the only one in its index, and another one has committed where it was aborted."""
    harness = PartitionLogHarness(seed=seed, is_replicated=True)
    log = harness.create()
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(ended(7), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    flush(log)
    truncate_to(log, 1)
    log.append(ended(7, commit=True), leader_epoch=1, origin=AppendOrigin.COORDINATOR)
    flush(log)
    harness.checkpoint(log)
    harness.disk.crash("power")
    log = harness.recover(harness.recovery_point)
    assert (log.log_end_offset, log.aborted_transactions(0, 2)) == (2, [])


def ended(producer_id: int, *, commit: bool = False) -> bytearray:
    return end_transaction_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
    )


@pytest.mark.parametrize(
    ("kind", "entry"),
    [("timeindex", struct.pack(">qi", START_MS + 99, 0)), ("index", struct.pack(">ii", 10, 200))],
)
def test_a_torn_index_entry_that_looks_like_an_earlier_one(kind: str, entry: bytes) -> None:
    harness = PartitionLogHarness(index_interval_bytes=100_000)
    log = harness.create()
    rows = fill(log, 30)
    flush(log)
    expected = [list(index.all()) for index in (log.active.offset_index, log.active.time_index)]
    harness.disk.open(harness.path(f"{FIRST}.{kind}")).append(entry)
    log = harness.recover(30)
    assert harness.recovery.checked_bytes == 0
    assert [list(index.all()) for index in (log.active.offset_index, log.active.time_index)] == expected
    assert finish(log.max_timestamp()) == (START_MS + 29, 29, 0)
    assert batches_in(log.read(29, 10**6, minimum_one=True, up_to=30).records.read())[0][2] == rows[29]  # type: ignore[union-attr]


def test_damaged_snapshots_are_replaced() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    for sequence in range(12):
        log.append(batch((bytes(80),), producer=(7, 0, sequence)), leader_epoch=0)
    held = list(log.snapshots.offsets)
    for offset in held:
        overwrite(harness, f"{offset:020d}.snapshot", b"xx", 20)
    log = harness.recover()
    for offset in held:
        assert log.snapshots.read(offset)[0].last_offset == offset - 1


def test_an_empty_segment_that_a_failed_roll_left() -> None:
    """Its removal was lost with the power; the segment before it has its offsets."""
    for point in (0, 10, 12):
        harness = PartitionLogHarness()
        log = harness.create()
        rows = fill(log)
        flush(log)
        harness.disk.open(harness.path("00000000000000000010.log"), create=True)
        log = harness.recover(point)
        assert (log.log_end_offset, read_all(log)) == (12, b"".join(rows))
        assert (harness.recovery.cuts, harness.recovery.truncated) == ([], False)
