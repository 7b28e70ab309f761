"""PartitionLog: appending, flushing, and what a failure leaves behind."""

from __future__ import annotations

import errno
import warnings

import pytest

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import finish
from tests.harness.partition_log import (
    START_MS,
    PartitionLogHarness,
    batch,
    bytes_of,
    fill,
    flush,
    read_all,
    refused,
    stamped,
    topic_config,
)
from tests.sim.files import Fault

with warnings.catch_warnings():  # kafka-python reads its own files in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords


class Waiter:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def notify(self, log: PartitionLog) -> None:
        self.seen.append((log.high_watermark, log.last_stable_offset))


# Appending.


def test_append_stamps_and_answers() -> None:
    log = PartitionLogHarness().create()
    first, second = batch((b"a", b"b"), keys=(b"k", b"l")), batch((b"c",))
    result = log.append(bytearray(first), leader_epoch=4)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms, result.log_start_offset) == (
        0,
        1,
        -1,
        0,
    )
    assert not result.must_wait
    result = log.append(memoryview(bytes(second)), leader_epoch=5)
    assert (result.base_offset, result.last_offset) == (2, 2)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset, log.latest_epoch) == (3, 3, 3, 5)
    assert read_all(log) == stamped(first, 0, 4) + stamped(second, 2, 5)
    assert log.epochs.entries() == [(4, 0), (5, 2)]


def test_an_independent_reader_reads_it() -> None:
    log = PartitionLogHarness(message_timestamp_type="LogAppendTime").create()
    log.append(batch((b"a", b"b"), keys=(b"k", b"l"), codec=4), leader_epoch=0)
    log.append(batch((b"c",)), leader_epoch=0)
    records = MemoryRecords(read_all(log))
    found = []
    while (read := records.next_batch()) is not None:
        assert read.validate_crc()
        found += [(record.offset, record.key, record.value, record.timestamp) for record in read]
    assert found == [(0, b"k", b"a", START_MS), (1, b"l", b"b", START_MS), (2, None, b"c", START_MS)]


def test_log_append_time() -> None:
    harness = PartitionLogHarness(message_timestamp_type="LogAppendTime")
    log = harness.create()
    harness.clock.ms += 77
    result = log.append(batch(timestamp=5), leader_epoch=0)
    assert result.log_append_time_ms == START_MS + 77
    found = finish(log.max_timestamp())
    assert found is not None
    assert found == (START_MS + 77, 0, 0)


def test_what_is_refused_leaves_no_trace() -> None:
    harness = PartitionLogHarness(max_message_bytes=500)
    log = harness.create()
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
    log = PartitionLogHarness().create()
    log.append(batch((bytes(300),)), leader_epoch=0)
    log.update_config(topic_config(max_message_bytes=200, cleanup_policy="compact"))
    refused(ErrorCode.MESSAGE_TOO_LARGE, log, batch((bytes(300),)))
    refused(ErrorCode.INVALID_RECORD, log, batch())


def test_a_duplicate_is_answered_as_kafka_does() -> None:
    log = PartitionLogHarness().create()
    sent = batch((b"a", b"b"), producer=(7, 0, 0))
    log.append(bytearray(sent), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    result = log.append(bytearray(sent), leader_epoch=0)
    assert (result.base_offset, result.last_offset, result.duplicate, result.must_wait) == (
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
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    harness.disk.faults.append(Fault("write", error, after_bytes=after_bytes))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch(producer=(7, 0, 0)))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, log, batch(producer=(7, 0, 0)))
    assert not log.offline
    harness.disk.faults.clear()
    assert log.append(batch(producer=(7, 0, 0)), leader_epoch=0).base_offset == 1
    assert harness.disk.size(harness.path("00000000000000000000.log")) == log.size


def test_any_other_error_takes_the_log_offline() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    waiter = Waiter()
    log.waiters.add(waiter)
    harness.disk.faults.append(Fault("write", errno.EIO, times=1))
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            log.append(batch(), leader_epoch=0)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert waiter.seen
    for call in (
        lambda: log.read(0, 1, minimum_one=True, up_to=1),
        lambda: finish(log.max_timestamp()),
        lambda: finish(log.offset_for_timestamp(0)),
        lambda: log.delete_records(1),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()


# The high watermark.


def test_waiters_hear_of_the_high_watermark() -> None:
    log = PartitionLogHarness().create()
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
    log = PartitionLogHarness(flush_messages=3).create()
    waiter = Waiter()
    log.waiters.add(waiter)
    sent = batch(producer=(7, 0, 0))
    assert [log.append(batch(), leader_epoch=0).must_wait for _ in range(2)] == [False, False]
    assert log.append(bytearray(sent), leader_epoch=0).must_wait
    assert log.append(bytearray(sent), leader_epoch=0).must_wait  # its repetition waits as well
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert bytes_of(log.read(2, 1_000, minimum_one=True, up_to=log.high_watermark)) == b""
    work = log.prepare_flush()
    assert work is not None
    work.run()
    assert log.append(batch(), leader_epoch=0).must_wait
    log.flushed(work)
    assert (log.recovery_point, log.high_watermark) == (3, 4)  # the fourth is the first of a new three
    assert waiter.seen[-1] == (4, 4)


def test_flush_of_every_record() -> None:
    log = PartitionLogHarness(flush_messages=1).create()
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
    harness = PartitionLogHarness(flush_messages=1)
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    harness.disk.faults.append(Fault("fsync", errno.EIO, times=1))
    work = log.prepare_flush()
    assert work is not None
    with pytest.raises(OSError, match="Input/output"):
        work.run()
    log.fail(OSError(errno.EIO, "fsync"))
    assert harness.disk.held == 0
    assert log.offline
    assert log.high_watermark == 0


def test_the_flusher_is_told_when_it_is_due() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    assert harness.flusher.told == [log]
    log.durability.due_bytes = 1_000
    while log.unflushed_bytes < 1_000:
        assert harness.flusher.told == [log]
        log.append(batch(), leader_epoch=0)
    assert harness.flusher.told == [log, log]


# Transactions.


def test_the_last_stable_offset() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    log.append(batch((b"a", b"b"), producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(batch(producer=(8, 0, 0), transactional=True), leader_epoch=0)
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)

    def end(producer_id: int, *, commit: bool) -> None:
        marker = end_transaction_marker(
            commit=commit, coordinator_epoch=1, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
        )
        log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)

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
        log = harness.open()
        assert log.aborted_transactions(0, 6) == found
        assert (log.high_watermark, log.last_stable_offset) == (7, 6)
    harness.disk.crash("process")
    log = harness.recover(2)
    assert log.aborted_transactions(0, 6) == found
    assert log.last_stable_offset == 6


def test_no_room_for_the_indexes_of_a_flush() -> None:
    harness = PartitionLogHarness(index_interval_bytes=0, flush_messages=1)
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    harness.disk.faults.append(Fault("write", errno.ENOSPC, lambda path: path.endswith("index")))
    log.append(batch(), leader_epoch=0)
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            log.prepare_flush()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.high_watermark, harness.disk.held) == (False, 0, 0)
    harness.disk.faults.clear()
    flush(log)
    assert (log.high_watermark, log.recovery_point) == (2, 2)
    harness.disk.crash("power")
    assert harness.recover(2).log_end_offset == 2


def test_no_descriptor_left_is_not_the_end() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    fill(log)
    log.close()
    log = harness.open()
    log.active.close()
    harness.disk.faults.append(Fault("open", errno.EMFILE))
    for call in (
        lambda: log.append(batch(), leader_epoch=0),
        lambda: log.read(0, 10, minimum_one=True, up_to=10),
        lambda: finish(log.offset_for_timestamp(0)),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    harness.disk.faults.clear()
    assert log.append(batch(), leader_epoch=0).base_offset == 10
