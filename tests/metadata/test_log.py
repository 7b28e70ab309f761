"""`MetadataLog`: loading the files that a start finds, and repairing them."""

from __future__ import annotations

import errno
import random

import pytest

from oncelog.broker.metadata.log import DIRECTORY, LoadedMetadata, MetadataLog
from oncelog.wire.batch import read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
)
from tests.harness.clocks import FixedClock
from tests.metadata.kafka_bytes import LOG_START
from tests.sim.disk import Fault
from tests.sim.files import SimFileSystem

DIR = f"/data/{DIRECTORY}"
FIRST = f"{DIR}/00000000000000000000.log"


def disk() -> SimFileSystem:
    files = SimFileSystem(random.Random(0))
    files.makedirs("/data")
    files.sync_dir("/")
    return files


def opened(files: SimFileSystem) -> tuple[MetadataLog, LoadedMetadata]:
    log = MetadataLog("/data", files, FixedClock())
    return log, log.load()


def led(files: SimFileSystem) -> MetadataLog:
    log, _ = opened(files)
    log.lead(1)
    return log


def topic(name: str) -> Message:
    return TopicRecord(name, name.encode().rjust(16, b"\1"))


def append(log: MetadataLog, *records: Message) -> int:
    return log.append([(record, 0) for record in records], durable=False)


def snapshot(log: MetadataLog, *names: str) -> None:
    log.snapshot((topic(name), 0) for name in names)


def names(loaded: LoadedMetadata) -> list[str]:
    return sorted(loaded.image.topics)


def test_a_new_log() -> None:
    files = disk()
    log, loaded = opened(files)
    assert (log.end_offset, log.epoch, loaded.image.offset, loaded.cut_bytes) == (0, 0, -1, 0)
    assert log.lead(7) == 1
    assert (log.end_offset, log.epoch) == (1, 1)
    assert files.read_bytes(f"{DIR}/quorum-state") == (
        b'{"clusterId":"","leaderId":7,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":7}],"data_version":0}'
    )
    assert files.read_bytes(f"{DIR}/leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    assert files.read_bytes(f"{DIR}/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    header = read_header(files.read_bytes(FIRST))
    assert (header.is_control, header.partition_leader_epoch, header.base_offset) == (True, 1, 0)


def test_every_start_is_a_new_leadership() -> None:
    files = disk()
    assert append(led(files), topic("a"), topic("b")) == 2
    log, loaded = opened(files)
    assert (names(loaded), loaded.image.offset, log.end_offset, log.epoch) == (["a", "b"], 2, 3, 1)
    assert log.lead(1) == 2
    assert append(log, topic("c")) == 4
    log, loaded = opened(files)
    assert (names(loaded), log.end_offset, log.lead(1)) == (["a", "b", "c"], 5, 3)
    assert files.read_bytes(f"{DIR}/leader-epoch-checkpoint") == b"0\n3\n1 0\n2 3\n3 5\n"


def test_the_epoch_is_above_both_quorum_state_and_log() -> None:
    files = disk()
    led(files).close()
    state = files.read_bytes(f"{DIR}/quorum-state")
    files.replace(f"{DIR}/quorum-state", state.replace(b'"leaderEpoch":1', b'"leaderEpoch": 41'))
    assert led(files).epoch == 42
    files.remove(f"{DIR}/quorum-state")
    assert led(files).epoch == 43
    files.replace(f"{DIR}/quorum-state", b"{}")
    log, _ = opened(files)
    with pytest.raises(DecodeError, match="leaderEpoch"):
        log.lead(1)


def test_a_log_of_kafka_is_read_and_continued() -> None:
    files = disk()
    files.makedirs(DIR)
    files.open(FIRST, create=True).append(LOG_START)
    log, loaded = opened(files)
    assert (log.end_offset, log.epoch, loaded.image.offset) == (15, 1, 14)
    assert loaded.image.features["metadata.version"] == 30
    assert log.lead(1) == 2
    append(log, topic("ours"))
    log, loaded = opened(files)
    assert (names(loaded), loaded.cut_bytes, log.end_offset) == (["ours"], 0, 17)


def test_the_log_is_cut_wherever_it_ends() -> None:
    files = disk()
    log = led(files)
    whole = [files.size(FIRST)]
    for name in "abc":
        append(log, topic(name), topic(name * 2))
        whole.append(files.size(FIRST))
    data = files.read_bytes(FIRST)
    for size in range(len(data) + 1):
        files = disk()
        files.makedirs(DIR)
        files.open(FIRST, create=True).append(data[:size])
        log, loaded = opened(files)
        kept = max((end for end in whole if end <= size), default=0)
        assert loaded.cut_bytes == size - kept
        assert (loaded.cut_reason != "") == (size > kept)
        assert files.size(FIRST) == kept
        assert len(names(loaded)) == 2 * max(whole.index(kept) if kept else 0, 0)
        log.lead(1)
        append(log, topic("after"))
        assert "after" in names(opened(files)[1])


def test_a_flipped_bit_cuts_the_log_there() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"))
    good = files.size(FIRST)
    append(log, topic("b"))
    append(log, topic("c"))
    data = files.read_bytes(FIRST)
    for position in range(good, good + 75, 3):
        files = disk()
        files.makedirs(DIR)
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        if 12 <= position - good < 16:
            continue  # the partition leader epoch, which no checksum covers
        files.open(FIRST, create=True).append(damaged)
        _, loaded = opened(files)
        assert (names(loaded), loaded.cut_bytes) == (["a"], len(data) - good), position


def test_an_unknown_record_is_not_skipped() -> None:
    files = disk()
    append(led(files), NoOpRecord())
    builder = BatchBuilder(base_offset=2, leader_epoch=1)
    builder.append(0, None, b"\x01\x7d\x00")
    files.open(FIRST).append(builder.build())
    size = files.size(FIRST)
    with pytest.raises(DecodeError, match="unknown type 125"):
        opened(files)
    assert files.size(FIRST) == size


def test_a_snapshot_and_the_log_after_it() -> None:
    files = disk()
    log = led(files)
    append(log, topic("gone"), topic("a"))
    snapshot(log, "a")
    assert log.bytes_since_snapshot == 0
    append(log, topic("b"))
    assert files.listdir(DIR) == [
        "00000000000000000003-0000000001.checkpoint",
        "00000000000000000003.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
    ]
    log, loaded = opened(files)
    assert (names(loaded), loaded.image.offset, log.end_offset, log.epoch) == (["a", "b"], 3, 4, 1)
    assert log.bytes_since_snapshot == files.size(f"{DIR}/00000000000000000003.log")
    log.lead(1)
    snapshot(log, "a", "b")
    assert [name for name in files.listdir(DIR) if name[0] == "0"] == [
        "00000000000000000005-0000000002.checkpoint",
        "00000000000000000005.log",
    ]
    assert files.read_bytes(f"{DIR}/leader-epoch-checkpoint") == b"0\n1\n2 5\n"
    log, loaded = opened(files)
    assert (names(loaded), loaded.image.offset, log.end_offset, log.epoch) == (["a", "b"], 4, 5, 2)


def test_a_snapshot_that_was_never_finished_is_ignored_and_removed() -> None:
    files = disk()
    append(led(files), topic("a"))
    files.open(f"{DIR}/00000000000000000002-0000000001.checkpoint.part", create=True).append(b"half")
    _, loaded = opened(files)
    assert (names(loaded), loaded.bad_snapshots) == (["a"], [])
    assert not any(name.endswith(".part") for name in files.listdir(DIR))


def test_an_older_snapshot_serves_where_the_newest_is_damaged() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"))
    older = files.read_bytes(FIRST)
    snapshot(log, "a")
    append(log, topic("b"))
    files.open(FIRST, create=True).append(older)
    files.open(f"{DIR}/00000000000000000003-0000000001.checkpoint", create=True).append(b"damaged")
    log, loaded = opened(files)
    assert (names(loaded), log.end_offset, len(loaded.bad_snapshots)) == (["a", "b"], 3, 1)


def test_a_log_without_its_beginning_is_refused() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"))
    snapshot(log, "a")
    files.remove(f"{DIR}/00000000000000000002-0000000001.checkpoint")
    with pytest.raises(DecodeError, match="begins at 2"):
        opened(files)
    assert files.exists(f"{DIR}/00000000000000000002.log")


def test_a_log_that_ends_before_its_snapshot_begins_anew_there() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"), topic("b"))
    data = files.read_bytes(FIRST)
    snapshot(log, "a", "b")
    files.remove(f"{DIR}/00000000000000000003.log")
    files.open(FIRST, create=True).append(data[:-1])
    log, loaded = opened(files)
    assert (names(loaded), loaded.image.offset, log.end_offset) == (["a", "b"], 2, 3)
    assert log.lead(1) == 2
    assert files.exists(f"{DIR}/00000000000000000003.log")
    assert not files.exists(FIRST)


def test_a_segment_behind_a_gap_is_cut() -> None:
    files = disk()
    append(led(files), topic("a"))
    files.open(f"{DIR}/00000000000000000009.log", create=True).append(b"behind a gap")
    log, loaded = opened(files)
    assert (names(loaded), loaded.cut_bytes, log.end_offset) == (["a"], 12, 2)
    assert "9 does not follow" in loaded.cut_reason
    assert not files.exists(f"{DIR}/00000000000000000009.log")


def test_a_transaction_counts_as_a_whole() -> None:
    files = disk()
    log = led(files)
    append(log, BeginTransactionRecord(name="one"), topic("a"))
    append(log, topic("b"), EndTransactionRecord())
    append(log, BeginTransactionRecord(name="two"), topic("c"), AbortTransactionRecord(reason="no"))
    append(log, topic("d"), BeginTransactionRecord(name="three"), topic("e"))
    _, loaded = opened(files)
    assert (names(loaded), loaded.open_transaction) == (["a", "b", "d"], True)
    append(log, AbortTransactionRecord())
    append(log, topic("f"))
    _, loaded = opened(files)
    assert (names(loaded), loaded.open_transaction) == (["a", "b", "d", "f"], False)


def test_a_failed_write_leaves_no_trace() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"))
    before = files.read_bytes(FIRST)
    files.faults.append(Fault("write", errno.ENOSPC, lambda path: path == FIRST, after_bytes=30))
    with pytest.raises(OSError, match="No space"):
        append(log, topic("b"))
    assert files.read_bytes(FIRST) == before
    assert (log.end_offset, log.bytes_since_snapshot) == (2, len(before))
    files.faults.clear()
    assert append(log, topic("b")) == 2
    assert names(opened(files)[1]) == ["a", "b"]


def test_a_failed_sync_ends_the_log() -> None:
    files = disk()
    log = led(files)
    files.faults.append(Fault("fsync", errno.EIO, lambda path: path == FIRST, times=1))
    with pytest.raises(OSError, match="error"):
        log.append([(topic("a"), 0)], durable=True)
    for durable in (False, True):
        with pytest.raises(OSError, match="offline"):
            log.append([(topic("b"), 0)], durable=durable)
    assert files.counts["fsync", FIRST] == 1


def test_a_snapshot_that_fails_changes_nothing() -> None:
    files = disk()
    log = led(files)
    append(log, topic("a"))
    for fault in (
        Fault("write", errno.ENOSPC, lambda path: path.endswith(".part"), after_bytes=100),
        Fault("fsync", errno.EIO, lambda path: path.endswith(".part")),
        Fault("rename", errno.EIO, lambda path: path.endswith(".part")),
    ):
        files.faults[:] = [fault]
        with pytest.raises(OSError):  # noqa: PT011 - any
            snapshot(log, "a")
        files.faults.clear()
        assert log.snapshot_id is None
        append(log, FeatureLevelRecord("x", 1))
        assert names(opened(files)[1]) == ["a"]
    snapshot(log, "a")
    assert names(opened(files)[1]) == ["a"]
