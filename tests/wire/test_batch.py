"""The batch header, stamping, building and control batches, against kafka-python's and aiokafka's code."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.batch import (
    HEADER_SIZE,
    SEQUENCE_MAX,
    BatchHeader,
    crc_matches,
    read_header,
    restamp_timestamps,
    stamp,
)
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import LZ4
from oncelog.wire.control import (
    LEADER_CHANGE,
    control_batch,
    end_transaction_marker,
    read_control_type,
    read_coordinator_epoch,
)
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from tests.wire import batches
from tests.wire.batches import CODEC_NAMES, CODECS, DECODERS, ENCODERS, Row, Seen, aiokafka, expected, kafka

ROWS: list[Row] = [
    (1_700_000_000_000, b"key", b"value", [("name", b"x"), ("empty", b""), ("null", None)]),
    (1_699_999_999_000, None, b"v" * 300, []),
    (1_700_000_000_777, b"", None, []),
]


def built(rows: Sequence[Row], **fields: object) -> bytearray:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    for timestamp, key, value, headers in rows:
        builder.append(timestamp, key, value, headers)
    return builder.build()


@pytest.mark.parametrize("encode", ENCODERS)
def test_reads_the_headers_that_others_write(encode: Callable[..., bytearray]) -> None:
    batch = encode(ROWS, LZ4, is_transactional=1, producer_id=2**40, producer_epoch=7, base_sequence=11)
    header = read_header(b"before" + batch, 6)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(batch) - 12,
        partition_leader_epoch=-1 if encode is batches.encode_aiokafka else 0,
        magic=2,
        crc=kafka.record.default_records.DefaultRecordBatch(bytes(batch)).crc,
        attributes=LZ4 | 0x10,
        last_offset_delta=2,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_777,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=11,
        record_count=3,
    )
    assert crc_matches(b"before" + batch, 6, header)
    assert (header.size, header.last_offset, header.next_offset) == (len(batch), 2, 3)
    assert (header.codec, header.last_sequence, header.has_producer_id) == (LZ4, 13, True)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert header.delete_horizon_ms is None


@settings(max_examples=60, deadline=None)
@given(
    batches.rows,
    st.sampled_from(CODECS),
    st.integers(0, 2**50),
    st.sampled_from([-1, 5]),
)
def test_others_read_what_the_builder_builds(
    rows: list[Row], codec: int, base_offset: int, producer_id: int
) -> None:
    batch = built(
        rows,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 2),
        base_sequence=min(producer_id, 0),
        transactional=producer_id > 0,
    )
    for decode in DECODERS:
        assert decode(batch) == expected(rows, base_offset)
    there = kafka.record.default_records.DefaultRecordBatch(bytes(batch))
    assert there.leader_epoch == 3
    assert (there.producer_id, there.is_transactional) == (producer_id, producer_id > 0)
    assert (there.records_count, there.last_offset) == (len(rows), base_offset + len(rows) - 1)
    assert (there.first_timestamp, there.max_timestamp) == (rows[0][0], max(row[0] for row in rows))
    assert there.compression_type == codec


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_builds_byte_for_byte_what_others_build(codec: int) -> None:
    ours = built(ROWS, codec=codec, leader_epoch=0)
    theirs = batches.encode_kafka_python(ROWS, codec)
    if codec == 0:
        assert ours == theirs
    else:  # other encoders of the same codec
        assert ours[21:HEADER_SIZE] == theirs[21:HEADER_SIZE]


def test_every_flipped_bit_that_the_crc_covers_is_noticed() -> None:
    batch = built(ROWS, codec=0)
    header = read_header(batch)
    assert crc_matches(batch, 0, header)
    for bit in range(17 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not crc_matches(batch, 0, read_header(batch)), bit
        batch[bit // 8] ^= 1 << bit % 8
    assert crc_matches(batch, 0, header)


def test_every_truncation_is_noticed() -> None:
    batch = built(ROWS)
    for size in range(len(batch)):
        cut = batch[:size]
        if size < HEADER_SIZE:
            with pytest.raises(DecodeError):
                read_header(cut)
        else:
            assert not crc_matches(cut, 0, read_header(cut))
        with pytest.raises(DecodeError):
            list(iterate_records(cut))


@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_another_magic(magic: int) -> None:
    batch = built(ROWS)
    struct.pack_into(">b", batch, 16, magic)
    with pytest.raises(DecodeError, match="magic"):
        read_header(batch)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_below_that_of_the_header(length: int) -> None:
    batch = built(ROWS)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(DecodeError, match="length"):
        read_header(batch)


def test_a_header_is_read_where_its_records_are_not() -> None:
    assert read_header(built(ROWS)[:HEADER_SIZE]).record_count == 3


def test_stamping_the_offset_leaves_the_crc_alone() -> None:
    batch = bytearray(b"before") + built(ROWS)
    stamp(memoryview(batch), 6, 2**40, 9)
    assert batch[:6] == b"before"
    there = kafka.record.default_records.DefaultRecordBatch(bytes(batch[6:]))
    assert there.validate_crc()
    assert (there.base_offset, there.leader_epoch) == (2**40, 9)
    assert [record.offset for record in there] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("log_append_time", [True, False])
def test_restamping_timestamps(log_append_time: bool) -> None:
    batch = bytearray(b"before") + built(ROWS, producer_id=1, transactional=True, codec=LZ4)
    batch[6 + 21] |= 0x40  # an undefined attribute bit
    restamp_timestamps(memoryview(batch), 6, max_timestamp=1234, log_append_time=log_append_time)
    there = kafka.record.default_records.DefaultRecordBatch(bytes(batch[6:]))
    assert there.validate_crc()
    assert there.attributes == LZ4 | 0x10 | (0x08 if log_append_time else 0)
    assert (there.first_timestamp, there.max_timestamp) == (1_700_000_000_000, 1234)
    times = [1234] * 3 if log_append_time else [row[0] for row in ROWS]
    assert [record.timestamp for record in there] == times
    assert [record.timestamp for record in iterate_records(batch, offset=6)] == times


def test_sequences_go_on_at_zero() -> None:
    def last(base_sequence: int, count: int) -> int:
        header = read_header(built(ROWS[:1] * count, base_sequence=base_sequence))
        there = kafka.record.default_records.DefaultRecordBatch(
            bytes(built(ROWS[:1] * count, base_sequence=base_sequence))
        )
        assert there.last_sequence == header.last_sequence
        return header.last_sequence

    assert last(-1, 3) == -1
    assert last(0, 3) == 2
    assert last(SEQUENCE_MAX - 1, 2) == SEQUENCE_MAX
    assert last(SEQUENCE_MAX - 1, 3) == 0
    assert last(SEQUENCE_MAX, 3) == 1


@pytest.mark.parametrize("decode", DECODERS)
def test_gaps_that_compaction_leaves(decode: Callable[[bytearray], list[Seen]]) -> None:
    builder = BatchBuilder(base_offset=100)
    assert builder.append(5, b"a", b"1") == 100
    assert builder.append(6, b"b", b"2", offset=107) == 107
    with pytest.raises(ValueError, match="offset 107 after 107"):
        builder.append(6, b"b", b"2", offset=107)
    batch = builder.build(last_offset=120, max_timestamp=9)
    assert [row[:3] for row in decode(batch)] == [(100, 5, b"a"), (107, 6, b"b")]
    header = read_header(batch)
    assert (header.last_offset, header.max_timestamp, header.record_count) == (120, 9, 2)
    with pytest.raises(ValueError, match="last offset"):
        builder.build(last_offset=106)


def test_an_empty_batch_keeps_offsets_and_producer() -> None:
    """A producer's last batch after compaction."""
    batch = BatchBuilder(base_offset=10, producer_id=4, producer_epoch=1, base_sequence=6).build(
        last_offset=12, max_timestamp=77
    )
    header = read_header(batch)
    assert crc_matches(batch, 0, header)
    assert (header.size, header.record_count, header.last_offset, header.last_sequence) == (61, 0, 12, 8)
    assert (header.base_timestamp, header.max_timestamp) == (-1, 77)
    assert list(iterate_records(batch)) == []
    with pytest.raises(ValueError, match="last offset"):
        BatchBuilder(base_offset=10).build()


def test_a_delete_horizon_stands_where_the_base_timestamp_does() -> None:
    batch = built(ROWS, delete_horizon_ms=1_600_000_000_000)
    header = read_header(batch)
    assert header.delete_horizon_ms is not None
    assert header.delete_horizon_ms == header.base_timestamp == 1_600_000_000_000
    for decode in DECODERS:
        assert decode(batch) == expected(ROWS)


@pytest.mark.parametrize(("commit", "name"), [(True, "commit"), (False, "abort")])
def test_end_transaction_markers(commit: bool, name: str) -> None:
    batch = end_transaction_marker(
        commit=commit, coordinator_epoch=12, producer_id=99, producer_epoch=3, timestamp=55, base_offset=8
    )
    there = kafka.record.default_records.DefaultRecordBatch(bytes(batch))
    assert there.validate_crc()
    assert there.is_control_batch
    assert there.is_transactional
    assert (there.producer_id, there.producer_epoch, there.base_sequence) == (99, 3, -1)
    (record,) = there
    assert (record.offset, record.timestamp, getattr(record, name), record.version) == (8, 55, True, 0)
    assert record.value == bytes.fromhex("0000 0000000c")  # version, coordinator epoch
    parsed = aiokafka.record.control_record.ControlRecord.parse(record.key)
    assert (parsed.version, parsed.type_) == (0, 1 if commit else 0)
    (ours,) = iterate_records(batch)
    assert ours.key is not None
    assert ours.value is not None
    assert read_control_type(ours.key) == commit
    assert read_coordinator_epoch(ours.value) == 12


def test_a_leader_change_is_not_transactional_and_has_no_producer() -> None:
    batch = control_batch(LEADER_CHANGE, b"message", timestamp=1, leader_epoch=4)
    there = kafka.record.default_records.DefaultRecordBatch(bytes(batch))
    assert there.is_control_batch
    assert not there.is_transactional
    assert (there.producer_id, there.leader_epoch) == (-1, 4)
    (record,) = iterate_records(batch)
    assert (record.key, record.value) == (bytes.fromhex("0000 0002"), b"message")


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_malformed_control_keys(key: bytes) -> None:
    with pytest.raises(DecodeError):
        read_control_type(key)
    with pytest.raises(DecodeError):
        read_coordinator_epoch(key)


def test_later_versions_of_control_keys_are_read_as_the_first() -> None:
    assert read_control_type(bytes.fromhex("0001 0006 ffff")) == 6
