"""What the validator refuses, changes and keeps. test_validate_kafka.py checks the same with Kafka's validator."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import pytest

from oncelog.wire.batch import read_header, stamp
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import GZIP, LZ4, NONE, ZSTD
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.validate import (
    InvalidRecords,
    ValidatedBatch,
    read_produced_batch,
    validate_at_once,
    validate_built,
)
from oncelog.wire.validation_rules import ValidationRules
from tests.wire.batches import CODEC_NAMES, CODECS, DECODERS, Row, decode_kafka_python, encode_kafka_python
from tests.wire.validate_cases import (
    ATTRIBUTES,
    COUNT,
    HOUR,
    LAST_DELTA,
    MAX_TIME,
    NOW,
    OK,
    ROWS,
    Case,
    all_cases,
    changed,
    rows,
    with_gaps,
    with_payload,
)


def run(records: bytes | bytearray | memoryview, rules: ValidationRules, now_ms: int = NOW) -> ValidatedBatch:
    batch, header = read_produced_batch(records, rules)
    return validate_at_once(batch, header, rules, now_ms)


@pytest.mark.parametrize("case", all_cases(), ids=repr)
def test_large_batches_get_the_same_error_but_no_record_is_named(case: Case) -> None:
    rules = copy(case.rules)
    rules.records_named_max = 0
    if case.error == OK:
        run(bytearray(case.records), rules)
        return
    with pytest.raises(KafkaError) as caught:
        run(bytearray(case.records), rules)
    assert caught.value.code == case.error, caught.value
    assert getattr(caught.value, "record_errors", []) == []


@pytest.mark.parametrize("case", all_cases(), ids=repr)
def test_cases(case: Case) -> None:
    if case.error != OK:
        with pytest.raises(KafkaError) as caught:
            run(bytearray(case.records), case.rules)
        assert caught.value.code == case.error, caught.value
        assert caught.value.message
        at_fault = getattr(caught.value, "record_errors", [])
        assert [index for index, _ in at_fault] == case.at_fault
        return
    done = run(bytearray(case.records), case.rules)
    assert done.header == read_header(done.batch)
    assert done.header.size == len(done.batch)
    assert done.max_timestamp == done.header.max_timestamp
    assert done.header.is_log_append_time == case.rules.log_append_time
    assert done.log_append_time == (NOW if case.rules.log_append_time else -1)
    seen = decode_kafka_python(done.batch)  # which checks the CRC
    times = [(row[1] + 2**63) % 2**64 - 2**63 for row in seen]  # kafka-python's do not overflow as Java's
    assert done.max_timestamp == (NOW if case.rules.log_append_time else max(-1, *times))
    if case.rules.codec is not None:
        assert done.header.codec == case.rules.codec


@pytest.mark.parametrize(
    ("timestamp", "says"),
    [
        (NOW - 2 * HOUR, f"is before {NOW - HOUR} (message.timestamp.before.max.ms={HOUR})"),
        (NOW + 3 * HOUR, f"is after {NOW + 2 * HOUR} (message.timestamp.after.max.ms={2 * HOUR})"),
        (NOW // 1000, "(message.timestamp.before.max.ms=3600000): it looks like seconds,"),
        (NOW * 1000, "(message.timestamp.after.max.ms=7200000): it looks like microseconds,"),
        (NOW * 1_000_000, "(message.timestamp.after.max.ms=7200000): it looks like nanoseconds,"),
    ],
)
def test_the_error_about_a_timestamp_names_the_key_and_a_likely_unit(timestamp: int, says: str) -> None:
    rules = ValidationRules(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=2 * HOUR)
    with pytest.raises(InvalidRecords) as caught:
        run(encode_kafka_python(rows(timestamp)), rules)
    [(_, message)] = caught.value.record_errors
    assert says in message
    assert message.startswith(f"timestamp {timestamp} ")


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_a_valid_batch_is_unchanged(codec: int) -> None:
    records = encode_kafka_python(ROWS, codec, producer_id=5, producer_epoch=1, base_sequence=9)
    before = bytes(records)
    for rules in (ValidationRules(), ValidationRules(codec=codec)):
        done = run(memoryview(records), rules)
        assert bytes(done.batch) == before
        stamp(done.batch, 0, 99, 3)
        assert records[:8] == (99).to_bytes(8, "big")  # the same memory
        stamp(done.batch, 0, 0, 0)


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_log_append_time_changes_the_header_in_place(codec: int) -> None:
    records = encode_kafka_python(ROWS, codec)
    before = bytes(records)
    done = run(memoryview(records), ValidationRules(log_append_time=True))
    assert bytes(done.batch) == bytes(records) != before
    assert [at for at in range(len(before)) if before[at] != records[at] and at not in range(17, 21)] == [
        22,
        *range(41, 43),
    ]
    for decode in DECODERS:
        assert [row[1] for row in decode(records)] == [NOW] * 3


def test_a_wrong_max_timestamp_is_corrected() -> None:
    records = changed(encode_kafka_python(ROWS), MAX_TIME, ">q", NOW + 99)
    done = run(memoryview(records), ValidationRules())
    assert bytes(done.batch) == bytes(records) == bytes(encode_kafka_python(ROWS))


def test_read_only_bytes_are_copied_before_a_change() -> None:
    records = bytes(encode_kafka_python(ROWS))
    done = run(records, ValidationRules(log_append_time=True))
    assert done.log_append_time == NOW
    assert not done.batch.readonly
    assert decode_kafka_python(records)[0][1] == NOW - 5


def test_a_refused_batch_is_unchanged() -> None:
    for case in all_cases():
        records = bytearray(case.records)
        if case.error != OK:
            with pytest.raises(KafkaError):
                run(memoryview(records), case.rules)
            assert records == case.records, case.name


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
@pytest.mark.parametrize("target", CODECS, ids=CODEC_NAMES)
def test_another_codec_keeps_everything_else(codec: int, target: int) -> None:
    producer = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 9, "is_transactional": 1}
    many: list[Row] = [
        (NOW - i % 7, b"%d" % i if i % 3 else None, b"value" * i, [("h", b"x")]) for i in range(100)
    ]
    records = encode_kafka_python(many, codec, **producer)
    done = run(memoryview(records), ValidationRules(codec=target))
    assert done.header.codec == target
    for decode in DECODERS:
        assert decode(done.batch) == decode(records)
    for name in [
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "last_offset_delta",
        "is_transactional",
        "max_timestamp",
        "base_timestamp",
    ]:
        assert getattr(done.header, name) == getattr(read_header(records), name)


def test_the_level_of_the_codec_is_obeyed() -> None:
    chance = random.Random(5)
    words = [chance.randbytes(chance.randrange(3, 9)) for _ in range(200)]
    records = encode_kafka_python(rows(NOW, value=b"".join(chance.choice(words) for _ in range(20_000))))
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 9, 17), (ZSTD, -7, 19)):
        sizes = [len(run(records, ValidationRules(codec=codec, level=level)).batch) for level in (low, high)]
        assert sizes[1] < sizes[0], (codec, sizes)


def test_offset_deltas_with_gaps_are_closed_when_a_batch_is_rebuilt() -> None:
    done = run(with_gaps(NONE), ValidationRules(codec=LZ4))
    assert [row[0] for row in decode_kafka_python(done.batch)] == [0, 1, 2]
    as_it_came = run(with_gaps(NONE), ValidationRules())
    assert [row[0] for row in decode_kafka_python(as_it_came.batch)] == [0, 2, 5]


def test_a_clients_log_append_time_becomes_the_records_time_when_rebuilt() -> None:
    records = changed(encode_kafka_python(ROWS), ATTRIBUTES, ">h", 0x08)
    done = run(records, ValidationRules(codec=LZ4))
    assert [row[1] for row in decode_kafka_python(done.batch)] == [NOW - 3] * 3


def test_errors_say_which_record_and_why() -> None:
    with pytest.raises(InvalidRecords) as caught:
        run(encode_kafka_python(rows(NOW, NOW + HOUR + 1, NOW)), ValidationRules())
    ((index, message),) = caught.value.record_errors
    assert index == 1
    assert str(NOW + HOUR + 1) in message
    with pytest.raises(InvalidRecords) as caught:
        run(encode_kafka_python(rows(NOW, NOW, keys=(b"k", None))), ValidationRules(compacted=True))
    assert caught.value.record_errors == [(1, "a record of a compacted topic needs a key")]


def test_no_more_errors_are_listed_than_the_limit() -> None:
    rules = ValidationRules(compacted=True, record_errors_max=10)
    with pytest.raises(InvalidRecords) as caught:
        run(encode_kafka_python([(NOW, None, b"v", [])] * 50), rules)
    assert [index for index, _ in caught.value.record_errors] == list(range(10))


def test_a_bomb_is_too_large() -> None:
    records = encode_kafka_python([(NOW, None, bytes(1_000_000), [])], GZIP)
    assert len(records) < 2000
    assert run(records, ValidationRules()).header.codec == GZIP
    with pytest.raises(KafkaError) as caught:
        run(records, ValidationRules(decompressed_bytes_max=900_000))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_limit_of_decompressed_bytes_grows_with_max_message_bytes() -> None:
    mib = 1024 * 1024
    for max_message_bytes, expected in ((mib, 64 * mib), (10 * mib, 160 * mib)):
        assert ValidationRules(max_message_bytes=max_message_bytes).decompressed_bytes_max == expected


def test_more_records_than_a_batch_may_have() -> None:
    record = bytes.fromhex("0c 00 00 00 01 01 00")
    for count, code in ((2**20 + 1, ErrorCode.MESSAGE_TOO_LARGE), (2**31 - 1, ErrorCode.MESSAGE_TOO_LARGE)):
        records = changed(with_payload(encode_kafka_python(ROWS), record * 3), COUNT, ">i", count)
        with pytest.raises(KafkaError) as caught:
            run(changed(records, LAST_DELTA, ">i", count - 1), ValidationRules())
        assert caught.value.code == code


def test_a_batch_larger_than_a_segment() -> None:
    records = encode_kafka_python(ROWS)
    assert run(records, ValidationRules(segment_bytes=len(records)))
    with pytest.raises(KafkaError) as caught:
        run(records, ValidationRules(segment_bytes=len(records) - 1))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_every_flipped_bit_behind_the_crc_is_refused(codec: int) -> None:
    good = encode_kafka_python(ROWS, codec)
    for bit in range(17 * 8, len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(KafkaError) as caught:
            run(bad, ValidationRules())
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_every_truncation_is_refused(codec: int) -> None:
    good = encode_kafka_python(ROWS, codec)
    for size in range(len(good)):
        with pytest.raises(KafkaError) as caught:
            run(good[:size], ValidationRules())
        assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("built_with", [NONE, ZSTD])
@pytest.mark.parametrize("codec", [None, NONE, GZIP])
@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes", None])
def test_batches_built_here_are_changed_as_any_other(
    control: bool, built_with: int, codec: int | None, log_append_time: bool, limit: str | None
) -> None:
    builder = BatchBuilder(
        control=control, transactional=control, producer_id=5, producer_epoch=0, codec=built_with
    )
    builder.append(NOW, b"\0\0\0\1", b"value" * 20)
    built = bytes(builder.build())
    limits: dict[str, Any] = {limit: 100} if limit is not None else {}
    rules = ValidationRules(codec=codec, log_append_time=log_append_time, from_client=False, **limits)
    outcomes: list[tuple[object, ...]] = []
    for check in (validate_at_once, validate_built):
        batch, header = read_produced_batch(bytearray(built), rules)
        try:
            valid = check(batch, header, rules, NOW + 1)
            outcomes.append(
                (bytes(valid.batch), repr(valid.header), valid.max_timestamp, valid.log_append_time)
            )
        except KafkaError as error:
            outcomes.append((error.code, str(error)))
    assert outcomes[0] == outcomes[1]
