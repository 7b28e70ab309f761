"""A log is opened after a clean stop, and its stop writes what that needs."""

from __future__ import annotations

from oncelog.wire.steps import finish
from tests.harness.partition_log import (
    DIRECTORY,
    START_MS,
    TOPIC_ID,
    PartitionLogHarness,
    batch,
    flush,
    read_all,
)
from tests.log.filled_logs import FIRST, fill, indexes_of


def test_opening_reads_next_to_nothing() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=5_000, index_interval_bytes=1_000)
    log = harness.create()
    fill(log, 200)
    flush(log)
    log.close()
    harness.disk.counts.clear()
    assert harness.open().log_end_offset == 200
    reads = {path: count for (operation, path), count in harness.disk.counts.items() if operation == "read"}
    logs = [path for path in reads if path.endswith(".log")]
    assert len(logs) == 1
    assert sum(reads.values()) < 8


def test_a_missing_index_is_made_again() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=1_000, index_interval_bytes=100)
    log = harness.create()
    rows = fill(log, 30)
    log.close()
    expected = [indexes_of(segment) for segment in harness.open().segments]
    for name in harness.disk.listdir(DIRECTORY):
        if name.endswith((".index", ".timeindex")):
            harness.disk.remove(harness.path(name))
            log = harness.open()
            assert [indexes_of(segment) for segment in log.segments] == expected
            assert read_all(log) == b"".join(rows)
            log.close()


def test_a_torn_end_after_a_clean_stop_is_cut_after_all() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    rows = fill(log)
    log.close()
    harness.disk.open(harness.path(f"{FIRST}.log")).append(b"xyz")
    assert read_all(harness.open()) == b"".join(rows)


def test_close_writes_nothing_where_nothing_changed() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    fill(log)
    log.close()
    log = harness.open()
    steps = harness.disk.steps
    log.close()
    assert harness.disk.steps == steps


def test_a_clean_stop_survives_a_loss_of_power() -> None:
    for seed in range(40):
        harness = PartitionLogHarness(seed=seed, internal_segment_bytes=1_000, index_interval_bytes=100)
        log = harness.create()
        rows = fill(log, 30)
        log.append(batch(producer=(7, 0, 0)), leader_epoch=3)
        log.close()
        harness.disk.crash("power")
        log = harness.open()
        assert read_all(log).startswith(b"".join(rows))
        assert log.epochs.entries() == [(0, 0), (3, 30)]
        assert log.append(batch(producer=(7, 0, 0)), leader_epoch=3).base_offset == 30
        assert log.topic_id == TOPIC_ID
        assert finish(log.max_timestamp()) == (START_MS + 29, 29, 0)
