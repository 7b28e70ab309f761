"""PartitionLog: appending, reading, rolling, what a failure leaves behind."""

from __future__ import annotations

import errno
import struct
import warnings

import pytest

from broker.log.partition_log import FileRange, Origin, PartitionLog
from broker.log.segment import CLEANED_SUFFIX, Segment
from tests.log.support import (
    START_MS,
    TOPIC_ID,
    Bench,
    batch,
    batches_in,
    bytes_of,
    flush,
    read_all,
    stamped,
    topic_config,
)
from tests.sim.files import Fault, SimulatedCrash
from wire.batch import BatchBuilder
from wire.control import end_transaction_marker
from wire.errors import ErrorCode, KafkaError

with warnings.catch_warnings():  # kafka-python reads its own files in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords  # type: ignore[import-untyped]


class Waiter:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def notify(self, log: PartitionLog) -> None:
        self.seen.append((log.high_watermark, log.last_stable_offset))


def refused(code: ErrorCode, log: PartitionLog, sent: bytearray, version: int = 13) -> KafkaError:
    """An append that is refused, and leaves no trace."""
    before = (log.log_end_offset, log.size, log.producers.snapshot(), log.epochs.entries(), read_all(log))
    with pytest.raises(KafkaError) as error:
        log.append(sent, leader_epoch=9, produce_version=version)
    assert error.value.code is code
    assert before == (
        log.log_end_offset,
        log.size,
        log.producers.snapshot(),
        log.epochs.entries(),
        read_all(log),
    )
    return error.value


# Appending.


def test_append_stamps_and_answers() -> None:
    log = Bench().create()
    first, second = batch((b"a", b"b"), keys=(b"k", b"l")), batch((b"c",))
    result = log.append(bytearray(first), leader_epoch=4)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms, result.log_start_offset) == (
        0,
        1,
        -1,
        0,
    )
    assert not result.must_flush
    result = log.append(memoryview(bytes(second)), leader_epoch=5)
    assert (result.base_offset, result.last_offset) == (2, 2)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset, log.latest_epoch) == (3, 3, 3, 5)
    assert read_all(log) == stamped(first, 0, 4) + stamped(second, 2, 5)
    assert log.epochs.entries() == [(4, 0), (5, 2)]


def test_an_independent_reader_reads_it() -> None:
    log = Bench(message_timestamp_type="LogAppendTime").create()
    log.append(batch((b"a", b"b"), keys=(b"k", b"l"), codec=4), leader_epoch=0)
    log.append(batch((b"c",)), leader_epoch=0)
    records = MemoryRecords(read_all(log))
    found = []
    while (read := records.next_batch()) is not None:
        assert read.validate_crc()
        found += [(record.offset, record.key, record.value, record.timestamp) for record in read]
    assert found == [(0, b"k", b"a", START_MS), (1, b"l", b"b", START_MS), (2, None, b"c", START_MS)]


def test_log_append_time() -> None:
    bench = Bench(message_timestamp_type="LogAppendTime")
    log = bench.create()
    bench.clock.ms += 77
    result = log.append(batch(timestamp=5), leader_epoch=0)
    assert result.log_append_time_ms == START_MS + 77
    found = log.max_timestamp()
    assert found is not None
    assert found == (START_MS + 77, 0, 0)


def test_what_is_refused_leaves_no_trace() -> None:
    bench = Bench(max_message_bytes=500)
    log = bench.create()
    log.append(batch(producer=(7, 1, 0)), leader_epoch=0)
    damaged = batch()
    damaged[-1] ^= 1
    refused(ErrorCode.CORRUPT_MESSAGE, log, damaged)
    refused(ErrorCode.MESSAGE_TOO_LARGE, log, batch((bytes(500),)))
    refused(ErrorCode.INVALID_RECORD, log, batch() + batch())
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, batch(producer=(7, 1, 5)))
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, batch(producer=(7, 0, 0)))
    refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, log, batch(codec=4), 6)
    assert log.append(batch(codec=4), leader_epoch=0, produce_version=7).base_offset == 1


def test_configuration_takes_effect() -> None:
    log = Bench().create()
    log.append(batch((bytes(300),)), leader_epoch=0)
    log.update_config(topic_config(max_message_bytes=200, cleanup_policy="compact"))
    refused(ErrorCode.MESSAGE_TOO_LARGE, log, batch((bytes(300),)))
    refused(ErrorCode.INVALID_RECORD, log, batch())


def test_a_duplicate_is_answered_as_kafka_does() -> None:
    log = Bench().create()
    sent = batch((b"a", b"b"), producer=(7, 0, 0))
    log.append(bytearray(sent), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    result = log.append(bytearray(sent), leader_epoch=0)
    assert (result.base_offset, result.last_offset, result.duplicate, result.must_flush) == (
        0,
        1,
        True,
        False,
    )
    assert result.log_append_time_ms == START_MS + 1  # the batch's timestamp, though it is the producer's
    assert log.log_end_offset == 3


# Failures.


@pytest.mark.parametrize("after_bytes", [0, 40])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_the_end(error: int, after_bytes: int) -> None:
    bench = Bench()
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    bench.disk.faults.append(Fault("write", error, after_bytes=after_bytes))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch(producer=(7, 0, 0)))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch(producer=(7, 0, 0)))
    assert not log.offline
    bench.disk.faults.clear()
    assert log.append(batch(producer=(7, 0, 0)), leader_epoch=0).base_offset == 1
    assert bench.disk.size(bench.path("00000000000000000000.log")) == log.size


def test_any_other_error_takes_the_log_offline() -> None:
    bench = Bench()
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    waiter = Waiter()
    log.waiters.add(waiter)
    bench.disk.faults.append(Fault("write", errno.EIO, times=1))
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            log.append(batch(), leader_epoch=0)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert waiter.seen
    for call in (
        lambda: log.read(0, 1, minimum_one=True, up_to=1),
        log.max_timestamp,
        lambda: log.offset_for_timestamp(0),
        lambda: log.delete_records(1),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()


def test_a_roll_that_fails_leaves_nothing_behind() -> None:
    """Neither at the segment's files nor at the snapshot; the log goes on in the old segment."""
    for operation, what in (
        ("open", ".log"),
        ("write", ".snapshot"),
        ("open", ".snapshot"),
        ("write", "index"),
    ):
        bench = Bench(internal_segment_bytes=1_000, index_interval_bytes=0)
        log = bench.create()
        for _ in range(9):
            log.append(batch((bytes(30),)), leader_epoch=0)
        bench.disk.faults.append(Fault(operation, errno.ENOSPC, lambda path, what=what: path.endswith(what)))  # type: ignore[misc, arg-type]
        refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch((bytes(500),)))
        assert len(log.segments) == 1
        assert not log.offline
        assert [name for name in bench.disk.listdir(bench.directory) if "09." in name] == []
        assert log.append(batch((b"small",)), leader_epoch=0).base_offset == 9
        bench.disk.faults.clear()
        assert log.append(batch((bytes(500),)), leader_epoch=0).base_offset == 10
        assert [segment.base_offset for segment in log.segments] == [0, 10]
        log.close()
        assert bench.open().log_end_offset == 11


def test_a_failed_read_takes_the_log_offline() -> None:
    bench = Bench()
    log = bench.create()
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    bench.disk.faults.append(Fault("read", errno.EIO))
    with pytest.raises(KafkaError) as error:
        log.read(1, 10, minimum_one=True, up_to=3)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline


# Rolling.


def test_roll_by_size() -> None:
    log = Bench(internal_segment_bytes=400).create()
    size = len(batch((bytes(100),)))
    for _ in range(7):
        log.append(batch((bytes(100),)), leader_epoch=0)
    assert size * 2 <= 400 < size * 3
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, log, batch((bytes(400),)))


def test_roll_by_time_goes_by_the_first_batch() -> None:
    bench = Bench(segment_ms=1_000)
    log = bench.create()
    log.append(batch(timestamp=START_MS), leader_epoch=0)
    bench.clock.ms += 5_000
    log.append(batch(timestamp=START_MS + 1_000), leader_epoch=0)
    assert len(log.segments) == 1
    log.close()
    log = bench.open()
    log.append(batch(timestamp=START_MS + 1_001), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_roll_by_time_without_timestamps_goes_by_the_clock() -> None:
    bench = Bench(segment_ms=1_000)
    log = bench.create()
    log.append(batch(timestamp=-1), leader_epoch=0)
    bench.clock.ms += 1_001
    log.append(batch(timestamp=-1), leader_epoch=0)
    assert len(log.segments) == 2


def test_jitter_is_less_than_asked_for() -> None:
    bench = Bench(segment_ms=1_000, segment_jitter_ms=400)
    found = {
        Bench(seed=seed, segment_ms=1_000, segment_jitter_ms=400).create().active.jitter_ms
        for seed in range(30)
    }
    assert len(found) > 10
    assert all(0 <= jitter < 400 for jitter in found)
    assert bench.create().active.jitter_ms < 400


def test_roll_when_an_index_is_full() -> None:
    log = Bench(segment_index_bytes=40, index_interval_bytes=0).create()
    for at in range(30):
        log.append(batch(timestamp=START_MS + at), leader_epoch=0)
    assert len(log.segments) > 5
    assert all(segment.time_index.entries <= 3 for segment in log.segments)
    assert read_all(log).count(b"value") == 30


def test_roll_before_offsets_outgrow_the_index() -> None:
    bench = Bench()
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    log.log_end_offset = log.high_watermark = 2**31 - 1
    log.append(batch(), leader_epoch=0)
    assert len(log.segments) == 1
    log.append(batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_the_files_of_a_partition() -> None:
    bench = Bench(internal_segment_bytes=400)
    log = bench.create()
    for _ in range(4):
        log.append(batch((bytes(100),)), leader_epoch=3)
    log.close()
    name = "00000000000000000002"
    assert bench.disk.listdir(bench.directory) == [
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
    assert bench.disk.read_bytes(bench.path("leader-epoch-checkpoint")) == b"0\n1\n3 0\n"
    metadata = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert bench.disk.read_bytes(bench.path("partition.metadata")) == metadata
    # The time index ends with the latest timestamp, as a roll and a close leave it.
    assert bench.disk.read_bytes(bench.path(f"{name}.timeindex")) == struct.pack(">qi", START_MS, 0)
    assert bench.open().topic_id == TOPIC_ID


def test_index_entries_do_not_pile_up_in_memory() -> None:
    bench = Bench(index_interval_bytes=0)
    log = bench.create()
    for at in range(1_300):
        log.append(batch(timestamp=START_MS + at), leader_epoch=0)
        assert log.active.offset_index.tail_bytes <= 4096
    assert bench.disk.size(bench.path("00000000000000000000.index")) >= 2 * 4096
    assert bench.disk.size(bench.path("00000000000000000000.timeindex")) >= 2 * 4096
    assert log.active.offset_index.entries == 1_299


# Reading.


def fill(log: PartitionLog, count: int = 10) -> list[bytes]:
    rows = []
    for at in range(count):
        sent = batch((bytes(at * 10),))
        rows.append(stamped(sent, at, 0))
        log.append(sent, leader_epoch=0)
    return rows


def test_read_sizes() -> None:
    log = Bench().create()
    rows = fill(log)
    whole = b"".join(rows)

    def read(offset: int, max_bytes: int, minimum_one: bool, up_to: int = 10) -> bytes:
        return bytes_of(log.read(offset, max_bytes, minimum_one=minimum_one, up_to=up_to))

    assert read(0, 1_000_000, True) == whole
    assert read(0, len(whole), False) == whole
    assert read(0, len(rows[0]) + 5, False) == whole[: len(rows[0]) + 5]  # a cut batch, as Kafka has it
    assert read(4, 1, True) == rows[4]
    assert read(4, 0, True) == rows[4]
    assert read(4, len(rows[4]) - 1, False) == b""
    assert read(4, len(rows[4]), False) == rows[4]
    assert read(2, 1_000_000, True, up_to=5) == b"".join(rows[2:5])
    assert read(5, 1_000_000, True, up_to=5) == b""
    assert read(9, 1_000_000, True, up_to=5) == b""
    assert read(10, 1_000_000, True) == b""


def test_read_out_of_range() -> None:
    log = Bench().create()
    fill(log)
    log.delete_records(3)
    for offset in (-1, 2, 11):
        with pytest.raises(KafkaError) as error:
            log.read(offset, 100, minimum_one=True, up_to=10)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert batches_in(bytes_of(log.read(3, 100, minimum_one=True, up_to=10)))[0][0] == 3


def test_read_inside_a_batch_gives_it_whole() -> None:
    log = Bench().create()
    sent = batch((b"a", b"b", b"c"))
    log.append(bytearray(sent), leader_epoch=0)
    assert bytes_of(log.read(2, 1_000, minimum_one=True, up_to=3)) == stamped(sent, 0, 0)


def test_reading_on_needs_no_search() -> None:
    """Neither where the last read ended, nor for the end of the log."""
    bench = Bench()
    log = bench.create()
    fill(log)
    log.read(0, 1_000_000, minimum_one=True, up_to=10)
    sent = batch((b"next",))
    log.append(bytearray(sent), leader_epoch=0)
    bench.disk.counts.clear()
    read = log.read(10, 1_000_000, minimum_one=True, up_to=11)
    assert not bench.disk.counts
    assert bytes_of(read) == stamped(sent, 10, 0)


def test_reading_on_into_the_next_segment() -> None:
    log = Bench(internal_segment_bytes=400).create()
    rows = fill(log)
    assert len(log.segments) > 2
    assert read_all(log) == b"".join(rows)
    log.roll()
    assert bytes_of(log.read(10, 100, minimum_one=True, up_to=10)) == b""
    sent = batch()
    log.append(bytearray(sent), leader_epoch=0)
    assert bytes_of(log.read(10, 100, minimum_one=True, up_to=11)) == stamped(sent, 10, 0)


def test_a_range_outlives_its_segment() -> None:
    bench = Bench(internal_segment_bytes=400)
    log = bench.create()
    rows = fill(log)
    read = log.read(0, 1_000_000, minimum_one=True, up_to=10)
    assert isinstance(read.records, FileRange)
    log.delete_oldest(len(log.segments) - 1, "test")
    bench.delete_scheduled()
    data = read.records.read()
    assert data == b"".join(rows)[: len(data)]
    assert bench.disk.held == 1
    read.records.release()
    read.records.release()
    assert bench.disk.held == 0


# The high watermark.


def test_waiters_hear_of_the_high_watermark() -> None:
    log = Bench().create()
    waiter = Waiter()
    log.waiters.add(waiter)
    log.append(batch(), leader_epoch=0)
    log.waiters.discard(waiter)
    log.append(batch(), leader_epoch=0)
    log.waiters.add(waiter)
    log.mark_deleted()
    assert waiter.seen == [(1, 1), (2, 2)]
    with pytest.raises(KafkaError) as error:
        log.append(batch(), leader_epoch=0)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_flush_messages_holds_the_high_watermark() -> None:
    log = Bench(flush_messages=3).create()
    waiter = Waiter()
    log.waiters.add(waiter)
    sent = batch(producer=(7, 0, 0))
    assert [log.append(batch(), leader_epoch=0).must_flush for _ in range(2)] == [False, False]
    assert log.append(bytearray(sent), leader_epoch=0).must_flush
    assert log.append(bytearray(sent), leader_epoch=0).must_flush  # its repetition waits as well
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert bytes_of(log.read(2, 1_000, minimum_one=True, up_to=log.high_watermark)) == b""
    work = log.prepare_flush()
    assert work is not None
    work.run()
    assert log.append(batch(), leader_epoch=0).must_flush
    log.flushed(work)
    assert (log.recovery_point, log.high_watermark) == (3, 4)  # the fourth is the first of a new three
    assert waiter.seen[-1] == (4, 4)


def test_flush_of_every_record() -> None:
    log = Bench(flush_messages=1).create()
    log.append(batch(), leader_epoch=0)
    work = log.prepare_flush()
    assert work is not None
    work.run()
    log.append(batch(), leader_epoch=0)
    log.flushed(work)
    assert (log.recovery_point, log.high_watermark) == (1, 1)
    assert bytes_of(log.read(0, 10_000, minimum_one=True, up_to=1)) == stamped(batch(), 0, 0)
    flush(log)
    assert (log.recovery_point, log.high_watermark, log.unflushed_bytes) == (2, 2, 0)
    assert log.prepare_flush() is None


def test_a_failed_flush_takes_the_log_offline() -> None:
    bench = Bench(flush_messages=1)
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    bench.disk.faults.append(Fault("fsync", errno.EIO, times=1))
    work = log.prepare_flush()
    assert work is not None
    with pytest.raises(OSError, match="Input/output"):
        work.run()
    log.fail(OSError(errno.EIO, "fsync"))
    assert bench.disk.held == 0
    assert log.offline
    assert log.high_watermark == 0


def test_the_flusher_is_told_when_it_is_due() -> None:
    bench = Bench()
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    assert bench.flusher.told == [log]
    log.flush_due_bytes = 1_000
    while log.unflushed_bytes < 1_000:
        assert bench.flusher.told == [log]
        log.append(batch(), leader_epoch=0)
    assert bench.flusher.told == [log, log]


# Transactions.


def test_the_last_stable_offset() -> None:
    bench = Bench()
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    log.append(batch((b"a", b"b"), producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(batch(producer=(8, 0, 0), transactional=True), leader_epoch=0)
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)

    def end(producer_id: int, *, commit: bool) -> None:
        marker = end_transaction_marker(
            commit=commit, coordinator_epoch=1, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
        )
        log.append(marker, leader_epoch=0, origin=Origin.COORDINATOR)

    end(7, commit=False)
    assert (log.high_watermark, log.last_stable_offset) == (5, 3)
    end(8, commit=True)
    assert log.last_stable_offset == 6
    found = log.aborted_transactions(0, 6)
    assert found == [(7, 1, 4, 3)]
    assert log.aborted_transactions(5, 6) == []
    log.append(batch(producer=(7, 0, 2), transactional=True), leader_epoch=0)
    for _ in range(2):
        log.close()
        log = bench.open()
        assert log.aborted_transactions(0, 6) == found
        assert (log.high_watermark, log.last_stable_offset) == (7, 6)
    bench.disk.crash("process")
    log = bench.recover(2)
    assert log.aborted_transactions(0, 6) == found
    assert log.last_stable_offset == 6


# Times.


def test_offsets_by_time() -> None:
    log = Bench(index_interval_bytes=0, internal_segment_bytes=300).create()
    times = [5, 3, 9, 9, 7, 12, 2, 12, 20, 1]
    for at in range(0, 10, 2):
        builder = BatchBuilder(codec=at % 3)
        for timestamp in times[at : at + 2]:
            builder.append(timestamp, None, b"")
        log.append(builder.build(), leader_epoch=at // 4)
    assert len(log.segments) > 1
    for wanted in range(22):
        offset = next((at for at in range(10) if times[at] >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert found == (None if offset is None else (times[offset], offset, offset // 2 * 2 // 4))
    assert log.max_timestamp() == (20, 8, 2)
    log.delete_records(3)
    assert log.offset_for_timestamp(4) == (9, 3, 0)


def test_times_in_an_empty_log() -> None:
    log = Bench().create()
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


# The log's start.


def test_delete_records() -> None:
    bench = Bench(internal_segment_bytes=400)
    log = bench.create()
    fill(log)
    log.append(batch(), leader_epoch=2)
    assert log.delete_records(4) == 4
    assert bench.saved_log_start == 4
    assert log.delete_records(2) == 4
    assert log.epoch_of(3) == -1
    assert log.epochs.entries() == [(0, 4), (2, 10)]
    with pytest.raises(KafkaError) as error:
        log.delete_records(12)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(11) == 11
    log.close()
    log = bench.open()
    assert (log.log_start_offset, log.log_end_offset) == (11, 11)
    assert log.append(batch(), leader_epoch=2).base_offset == 11


def test_delete_records_is_not_answered_before_it_is_durable() -> None:
    bench = Bench()
    log = bench.create()
    fill(log)

    def fail(failing: PartitionLog) -> None:
        raise OSError(errno.EIO, "checkpoint")

    bench.env.save_log_start = fail
    with pytest.raises(KafkaError) as error:
        log.delete_records(4)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_start_offset == 0


def test_delete_oldest() -> None:
    bench = Bench(internal_segment_bytes=400)
    log = bench.create()
    rows = fill(log)
    bases = [segment.base_offset for segment in log.segments]
    log.delete_oldest(2, "test")
    assert log.log_start_offset == bases[2]
    assert read_all(log) == b"".join(rows[bases[2] :])
    assert log.size == len(read_all(log))
    gone = [path for path in bench.scheduled if path.endswith(".log.deleted")]
    assert len(gone) == 2
    assert all(bench.disk.exists(path) for path in bench.scheduled)
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
    bench = Bench(internal_segment_bytes=400, cleanup_policy="compact")
    log = bench.create()
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
    bench.delete_scheduled()
    for offset in (0, 1):
        assert batches_in(bytes_of(log.read(offset, 1, minimum_one=True, up_to=12)))[0][0] == 1
    log.close()
    bench.delete_scheduled()
    assert read_all(bench.open()) == expected
    assert not [
        name
        for name in bench.disk.listdir(bench.directory)
        if not name.endswith(("index", "log", "snapshot", "checkpoint", "metadata"))
    ]


@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_while_segments_are_replaced(kind: str) -> None:
    """Whatever step it dies in: there are the old segments or the new one, never less and never both."""
    for step in range(60):
        bench = Bench(seed=step, internal_segment_bytes=400, cleanup_policy="compact")
        log = bench.create()
        rows = []
        for at in range(12):
            sent = batch((bytes(50),), keys=(b"k",))
            rows.append(stamped(sent, at, 0))
            log.append(sent, leader_epoch=0)
        flush(log)
        old = log.segments[:2]
        end = log.segments[2].base_offset
        bench.disk.crash_at = bench.disk.steps + step
        try:
            log.replace_segments(cleaned(log, old, {1, end - 1}), old)
            bench.delete_scheduled()
            done = True
        except SimulatedCrash:
            done = False
        bench.disk.crash(kind)  # type: ignore[arg-type]
        bench.scheduled.clear()
        log = bench.recover(log.recovery_point)
        after = rows[1] + rows[end - 1] + b"".join(rows[end:])
        assert read_all(log) in (b"".join(rows), after), step
        assert not bench.recovery.cuts
        if done:
            assert step > 20
            break
    else:
        raise AssertionError("it never came to its end")


def test_no_room_for_the_indexes_of_a_flush() -> None:
    bench = Bench(index_interval_bytes=0, flush_messages=1)
    log = bench.create()
    log.append(batch(), leader_epoch=0)
    bench.disk.faults.append(Fault("write", errno.ENOSPC, lambda path: path.endswith("index")))
    log.append(batch(), leader_epoch=0)
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            log.prepare_flush()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.high_watermark, bench.disk.held) == (False, 0, 0)
    bench.disk.faults.clear()
    flush(log)
    assert (log.high_watermark, log.recovery_point) == (2, 2)
    bench.disk.crash("power")
    assert bench.recover(2).log_end_offset == 2


def test_no_descriptor_left_is_not_the_end() -> None:
    bench = Bench()
    log = bench.create()
    fill(log)
    log.close()
    log = bench.open()
    log.active.close()
    bench.disk.faults.append(Fault("open", errno.EMFILE))
    for call in (
        lambda: log.append(batch(), leader_epoch=0),
        lambda: log.read(0, 10, minimum_one=True, up_to=10),
        lambda: log.offset_for_timestamp(0),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    bench.disk.faults.clear()
    assert log.append(batch(), leader_epoch=0).base_offset == 10
