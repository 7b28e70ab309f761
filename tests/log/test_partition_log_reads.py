"""PartitionLog: reading by offset and by time."""

from __future__ import annotations

import errno

import pytest

from oncelog.broker.log.results import FileRange
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import finish
from tests.harness.partition_log import (
    PartitionLogHarness,
    batch,
    batches_in,
    bytes_of,
    fill,
    read_all,
    stamped,
)
from tests.sim.files import Fault


def test_a_failed_read_takes_the_log_offline() -> None:
    harness = PartitionLogHarness()
    log = harness.create()
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    harness.disk.faults.append(Fault("read", errno.EIO))
    with pytest.raises(KafkaError) as error:
        log.read(1, 10, minimum_one=True, up_to=3)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline


def test_read_sizes() -> None:
    log = PartitionLogHarness().create()
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
    log = PartitionLogHarness().create()
    fill(log)
    log.delete_records(3)
    for offset in (-1, 2, 11):
        with pytest.raises(KafkaError) as error:
            log.read(offset, 100, minimum_one=True, up_to=10)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert batches_in(bytes_of(log.read(3, 100, minimum_one=True, up_to=10)))[0][0] == 3


def test_read_inside_a_batch_gives_it_whole() -> None:
    log = PartitionLogHarness().create()
    sent = batch((b"a", b"b", b"c"))
    log.append(bytearray(sent), leader_epoch=0)
    assert bytes_of(log.read(2, 1_000, minimum_one=True, up_to=3)) == stamped(sent, 0, 0)


def test_reading_on_needs_no_search() -> None:
    """Neither where the last read ended, nor for the end of the log."""
    harness = PartitionLogHarness()
    log = harness.create()
    fill(log)
    log.read(0, 1_000_000, minimum_one=True, up_to=10)
    sent = batch((b"next",))
    log.append(bytearray(sent), leader_epoch=0)
    harness.disk.counts.clear()
    read = log.read(10, 1_000_000, minimum_one=True, up_to=11)
    assert not harness.disk.counts
    assert bytes_of(read) == stamped(sent, 10, 0)


def test_reading_on_into_the_next_segment() -> None:
    log = PartitionLogHarness(internal_segment_bytes=400).create()
    rows = fill(log)
    assert len(log.segments) > 2
    assert read_all(log) == b"".join(rows)
    log.roll()
    assert bytes_of(log.read(10, 100, minimum_one=True, up_to=10)) == b""
    sent = batch()
    log.append(bytearray(sent), leader_epoch=0)
    assert bytes_of(log.read(10, 100, minimum_one=True, up_to=11)) == stamped(sent, 10, 0)


def test_a_range_outlives_its_segment() -> None:
    harness = PartitionLogHarness(internal_segment_bytes=400)
    log = harness.create()
    rows = fill(log)
    read = log.read(0, 1_000_000, minimum_one=True, up_to=10)
    assert isinstance(read.records, FileRange)
    log.delete_oldest(len(log.segments) - 1, "test")
    harness.delete_scheduled()
    data = read.records.read()
    assert data == b"".join(rows)[: len(data)]
    assert harness.disk.held == 1
    read.records.release()
    read.records.release()
    assert harness.disk.held == 0


# Times.


def test_offsets_by_time() -> None:
    log = PartitionLogHarness(index_interval_bytes=0, internal_segment_bytes=300).create()
    times = [5, 3, 9, 9, 7, 12, 2, 12, 20, 1]
    for at in range(0, 10, 2):
        builder = BatchBuilder(codec=at % 3)
        for timestamp in times[at : at + 2]:
            builder.append(timestamp, None, b"")
        log.append(builder.build(), leader_epoch=at // 4)
    assert len(log.segments) > 1
    for wanted in range(22):
        offset = next((at for at in range(10) if times[at] >= wanted), None)
        found = finish(log.offset_for_timestamp(wanted))
        assert found == (None if offset is None else (times[offset], offset, offset // 2 * 2 // 4))
    assert finish(log.max_timestamp()) == (20, 8, 2)
    log.delete_records(3)
    assert finish(log.offset_for_timestamp(4)) == (9, 3, 0)


def test_times_in_an_empty_log() -> None:
    log = PartitionLogHarness().create()
    assert finish(log.max_timestamp()) is None
    assert finish(log.offset_for_timestamp(0)) is None
