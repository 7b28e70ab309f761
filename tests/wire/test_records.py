"""Records as objects, against the encoders of kafka-python and aiokafka and a description of the format."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.batch import BatchHeader, assemble, read_header
from oncelog.wire.compression import GZIP, TooLarge
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import Record, iterate_records, records_of, scan
from tests.wire import batches
from tests.wire.batches import CODEC_NAMES, CODECS, ENCODERS, Row, expected, seen, varint

BASE = 1_700_000_000_000


@settings(max_examples=60, deadline=None)
@given(batches.rows, st.sampled_from(CODECS), st.sampled_from(ENCODERS))
def test_reads_what_others_write(rows: list[Row], codec: int, encode: Callable[..., bytearray]) -> None:
    batch = encode(rows, codec)
    assert seen(list(iterate_records(batch))) == expected(rows)
    assert seen(list(iterate_records(b"before" + batch, offset=6))) == expected(rows)
    assert seen(list(iterate_records(memoryview(batch), read_header(batch)))) == expected(rows)


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_the_decompressed_size_is_bounded(codec: int) -> None:
    batch = batches.encode_kafka_python([(BASE, None, bytes(10_000), [])], codec)
    header = read_header(batch)
    size = len(records_of(batch, header))
    assert len(records_of(batch, header, size)) == size
    if codec:
        with pytest.raises(TooLarge):
            records_of(batch, header, size - 1)
        with pytest.raises(TooLarge):
            list(iterate_records(batch, max_size=size - 1))


def record(
    *,
    attributes: bytes = b"\0",
    timestamp: bytes = varint(0),
    offset: bytes = varint(0),
    key: bytes = varint(3) + b"key",
    value: bytes = varint(5) + b"value",
    headers: bytes = varint(0),
    length: int | None = None,
) -> bytes:
    body = attributes + timestamp + offset + key + value + headers
    return varint(len(body) if length is None else length) + body


def in_batch(payload: bytes, count: int = 1, base_timestamp: int = BASE) -> bytearray:
    return assemble(
        BatchHeader(0, 0, -1, 2, 0, 0, count - 1, base_timestamp, BASE, -1, -1, -1, count), payload
    )


def test_one_by_hand() -> None:
    payload = record(
        timestamp=varint(-3),
        offset=varint(4),
        headers=varint(2) + varint(1) + b"h" + varint(-1) + varint(0) + varint(2) + b"ab",
    )
    assert list(iterate_records(in_batch(payload))) == [
        Record(4, BASE - 3, b"key", b"value", [(b"h", None), (b"", b"ab")])
    ]


GOOD = {
    "no key, no value": record(key=varint(-1), value=varint(-1)),
    "null is any negative length": record(key=varint(-7), value=varint(-(2**31))),
    "attributes mean nothing": record(attributes=b"\xff"),
    "varints longer than they need be": record(
        key=b"\x86\x80\x80\x80\x00key", timestamp=b"\x80" * 9 + b"\x00"
    ),
    "a value of three length bytes": record(value=varint(20_000) + bytes(20_000)),
    "a header key that is not UTF-8": record(headers=varint(1) + varint(2) + b"\xff\xfe" + varint(-1)),
}

BAD = {
    "length 0": record(length=0),
    "length -1": record(length=-1),
    "length too small by one": record(length=len(record()) - 2),
    "length too great by one": record(length=len(record())),
    "length of another world": record(length=2**31 - 1),
    "key past the record": record(key=varint(100) + b"key"),
    "value past the record": record(value=varint(7) + b"value"),
    "value length cut short": b"\x08\0\0\0\x01" + b"\x80",
    "negative header count": record(headers=varint(-1)),
    "header count without headers": record(headers=varint(1)),
    "more headers than bytes": record(headers=varint(2**31 - 1) + bytes(9)),
    "header without a key": record(headers=varint(1) + varint(-1) + varint(0)),
    "header value past the record": record(headers=varint(1) + varint(1) + b"h" + varint(9) + b"v"),
    "bytes after the headers": record(headers=varint(0) + b"\0"),
    "varint of six bytes": record(key=b"\x86\x80\x80\x80\x80\x00key"),
    "varlong of eleven bytes": record(timestamp=b"\x80" * 10 + b"\x00"),
}


@pytest.mark.parametrize("name", GOOD)
def test_odd_but_well_formed(name: str) -> None:
    (one,) = iterate_records(in_batch(GOOD[name]))
    assert one.key in (None, b"key")
    assert scan(GOOD[name], 0, len(GOOD[name]))[0] == len(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_malformed(name: str) -> None:
    with pytest.raises(DecodeError):
        list(iterate_records(in_batch(BAD[name])))
    with pytest.raises(DecodeError):  # nor does it read from the following record
        list(iterate_records(in_batch(BAD[name] + record(offset=varint(1)), 2)))


def test_every_truncation_of_the_records_is_refused() -> None:
    payload = record(headers=varint(1) + varint(1) + b"h" + varint(2) + b"hv") + record(offset=varint(1))
    assert len(list(iterate_records(in_batch(payload, 2)))) == 2
    for size in range(len(payload)):
        with pytest.raises(DecodeError):
            list(iterate_records(in_batch(payload[:size], 2)))


def test_the_count_has_to_be_that_of_the_records() -> None:
    for count in (0, 1, 3, 2**31 - 1):
        with pytest.raises(DecodeError):
            list(iterate_records(in_batch(record() + record(offset=varint(1)), count)))


def test_a_compressed_batch_that_does_not_decompress() -> None:
    batch = in_batch(b"not gzip")
    batch[22] |= GZIP
    with pytest.raises(DecodeError):
        list(iterate_records(batch))


def test_timestamps_wrap_as_those_of_java() -> None:
    (one,) = iterate_records(in_batch(record(timestamp=varint(2)), base_timestamp=2**63 - 1))
    assert one.timestamp == -(2**63) + 1
