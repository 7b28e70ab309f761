"""Kafka's LogValidator (BatchOracle.java) and ours validate the same batches: the results must be equal.

The batches are those of validate_cases.py, and randomly damaged ones.
"""

from __future__ import annotations

import pathlib
import random
import struct
from collections.abc import Sequence

import pytest

from oncelog.wire.batch import HEADER_SIZE, BatchHeader, assemble, read_header
from oncelog.wire.compression import NONE, compress
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.records import iterate_records
from oncelog.wire.validate import InvalidRecords, read_produced_batch, validate_at_once
from oncelog.wire.validation_rules import ValidationRules
from tests.harness.kafka_oracle import Oracle
from tests.wire.batches import CODECS, Row, encode_kafka_python
from tests.wire.validate_cases import NOW, Case, all_cases

ORACLE = pathlib.Path(__file__).with_name("BatchOracle.java")
RANDOM_BATCHES, RECORDED_BATCHES = 4000, 120

pytestmark = pytest.mark.slow


class Result:
    """The result of one validator: the error and the invalid records, or the batch to append."""

    def __init__(self, error: int, at_fault: Sequence[int], batch: bytes, max_timestamp: int = -1) -> None:
        self.error = ErrorCode(error)
        self.at_fault = list(at_fault)
        self.batch = batch
        self.max_timestamp = max_timestamp

    def told(self) -> tuple[ErrorCode, list[int], int]:
        return self.error, self.at_fault, self.max_timestamp

    def header(self, *, rebuilt: bool) -> BatchHeader:
        header = read_header(self.batch)
        header.partition_leader_epoch = header.base_offset = 0  # the log stamps both later
        if rebuilt:  # by another encoder, and relative to its first record
            header.batch_length = header.crc = header.base_timestamp = 0
        return header


def validate_by_kafka(oracle: Oracle, cases: Sequence[Case]) -> list[Result]:
    out = oracle(ORACLE, b"".join(map(question, cases)))
    results, at = [], 0
    for _ in cases:
        error, count = struct.unpack_from(">hi", out, at)
        at_fault = struct.unpack_from(f">{count}i", out, at + 6)
        at += 6 + 4 * count
        _, max_timestamp, size = struct.unpack_from(">qqi", out, at)
        results.append(Result(error, at_fault, out[at + 20 : at + 20 + size], max_timestamp))
        at += 20 + size
    assert at == len(out)
    return results


def question(case: Case) -> bytes:
    rules = case.rules
    body = struct.pack(
        ">hBBBbqqqi",
        case.version,
        rules.compacted,
        rules.log_append_time,
        rules.from_client,
        -1 if rules.codec is None else rules.codec,
        rules.timestamp_before_max_ms,
        rules.timestamp_after_max_ms,
        NOW,
        rules.max_message_bytes,
    )
    return struct.pack(">i", len(body) + len(case.records)) + body + case.records


def validate_by_us(records: bytes, rules: ValidationRules) -> Result:
    try:
        batch, header = read_produced_batch(bytearray(records), rules)
        done = validate_at_once(batch, header, rules, NOW)
    except KafkaError as error:
        named = [index for index, _ in error.record_errors] if isinstance(error, InvalidRecords) else []
        return Result(error.code, named, b"")
    return Result(0, [], bytes(done.batch), done.max_timestamp)


def assert_same_batch(case: Case, ours: Result, kafkas: Result) -> None:
    rebuilt = case.rules.codec is not None and case.rules.codec != read_header(case.records).codec
    theirs = kafkas.header(rebuilt=rebuilt)
    if rebuilt and not case.rules.from_client:
        theirs.attributes |= 0x20  # which Kafka loses there
    assert ours.header(rebuilt=rebuilt) == theirs, case
    if rebuilt:
        assert list(iterate_records(ours.batch)) == list(iterate_records(kafkas.batch)), case
    else:
        assert ours.batch[HEADER_SIZE:] == kafkas.batch[HEADER_SIZE:], case


def test_the_cases_are_what_kafka_does(oracle: Oracle) -> None:
    cases = all_cases()
    for case, kafkas in zip(cases, validate_by_kafka(oracle, cases), strict=True):
        assert (kafkas.error, kafkas.at_fault) == (case.error, case.at_fault), case
        if not kafkas.error:
            ours = validate_by_us(case.records, case.rules)
            assert ours.told() == kafkas.told(), case
            assert_same_batch(case, ours, kafkas)


def random_rows(chance: random.Random) -> list[Row]:
    count = chance.choice([1, 1, 2, 3, 5, 70, 130])
    size, spread = chance.choice([0, 1, 5, 20, 60, 70, 100, 300]), chance.choice([0, 0, 0, 3])
    key = chance.choice([None, b"k", b"k" * 30, b"k" * 70])
    no_headers: list[tuple[str, bytes | None]] = []
    some: list[tuple[str, bytes | None]] = [("h", None), ("abc", b"y" * 100)]
    headers = chance.choice([no_headers, no_headers, some, some[:1]])
    step_ms = chance.choice([0.1, 1, 50, 5000, -3])
    return [
        (
            NOW - 3_000_000 + int(index * step_ms),
            key,
            None if spread and chance.random() < 0.3 else b"v" * (size + chance.randint(0, spread)),
            headers,
        )
        for index in range(count)
    ]


def damaged(payload: bytes, chance: random.Random) -> bytes:
    out = bytearray(payload)
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2])):
        at = chance.randrange(len(out) if chance.random() < 0.5 else min(len(out), 12))
        kind = chance.random()
        near = [out[at] ^ 1, out[at] ^ 2, out[at] ^ 128, (out[at] + 2) % 256, (out[at] - 2) % 256]
        if kind < 0.5:
            out[at] = chance.choice([0, 1, 2, 3, 127, 128, 129, 255, *near])
        elif kind < 0.65:
            del out[at]
        elif kind < 0.8:
            out.insert(at, chance.choice([0, 1, 128, chance.randrange(256)]))
        elif kind < 0.9:
            del out[at:]
        else:
            out += bytes(chance.randrange(3))
        if not out:
            break
    return bytes(out)


def random_case(chance: random.Random, number: int) -> Case:
    """Uncompressed batches that stay so, or compressed ones that are decompressed: the two cases where Kafka
    checks every byte.
    """
    good = encode_kafka_python(random_rows(chance))
    codec, target = chance.choice([(NONE, None), (NONE, None), (chance.choice(CODECS[1:]), NONE)])
    header = read_header(good)
    header.attributes = codec
    payload = damaged(bytes(good[HEADER_SIZE:]), chance)
    return Case(
        f"random {number}",
        assemble(header, compress(codec, payload)),
        codec=target,
        compacted=chance.random() < 0.2,
        log_append_time=chance.random() < 0.1,
    )


def test_damaged_batches_are_refused_as_kafka_refuses_them(oracle: Oracle) -> None:
    chance = random.Random(1)
    count = RANDOM_BATCHES if oracle.is_asked else RECORDED_BATCHES
    cases = [random_case(chance, number) for number in range(count)]
    accepted = 0
    for case, kafkas in zip(cases, validate_by_kafka(oracle, cases), strict=True):
        ours = validate_by_us(case.records, case.rules)
        if (
            kafkas.error == ErrorCode.UNKNOWN_SERVER_ERROR
        ):  # a malformed varint as length: Kafka does not catch the exception
            assert ours.error == ErrorCode.INVALID_RECORD, case
            continue
        assert ours.told() == kafkas.told(), (case, case.records.hex())
        if not kafkas.error and (case.rules.codec is None or is_text(case.records)):
            accepted += 1
            assert_same_batch(case, ours, kafkas)
    assert accepted > count // 10


def is_text(records: bytes) -> bool:
    """Whether header keys are UTF-8: when Kafka rebuilds a batch, it replaces other bytes."""
    try:
        for record in iterate_records(records):
            for name, _ in record.headers:
                name.decode()
    except UnicodeDecodeError:
        return False
    return True
