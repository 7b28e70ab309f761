"""The compiled functions: all kinds of fields, refused values, file ranges, tracebacks.

Expected bytes are written by hand after KIP-482 and the protocol guide.
"""

import traceback
from typing import Any

import pytest

from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import (
    Message,
    Records,
    SizedRange,
    Struct,
    Uuid,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from tests.wire.points import Point, Rows

KINDS = (bytes, bytearray, memoryview)
UUID = bytes(range(16))


class Everything(Message, kind="data", versions="0-1", flexible="1+"):
    flag: bool = boolean()
    small: int = int8()
    short: int = int16()
    port: int = uint16()
    count: int = int32()
    checksum: int = uint32()
    offset: int = int64()
    ratio: float = float64()
    topic_id: Uuid = uuid()
    name: str = string()
    rack: str | None = string(nullable="0+")
    blob: bytes = bytes_()
    user_data: bytes | None = bytes_(nullable="0+")
    point: Point = struct(Point)
    cursor: Point | None = struct(Point, nullable="0+")
    points: list[Point] = array(Point)
    numbers: list[int] | None = array(int32, nullable="0+")
    ids: list[Uuid] = array(uuid)
    names: list[str] = array(string)
    records: Records | None = records(nullable="0+")


SET = Everything(
    True, -2, -3, 65535, -4, 2**32 - 1, -5, 1.5, UUID, "né", "r", b"ab", b"c",
    Point(1, 2), Point(3, 4), [Point(5, 6)], [7, -8], [UUID], ["s", ""], b"records",
)  # fmt: skip
NULLS = Everything(rack=None, user_data=None, cursor=None, numbers=None, records=None)
FIXED = (
    b"\x01\xfe\xff\xfd\xff\xff\xff\xff\xff\xfc\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfb"
    b"\x3f\xf8\0\0\0\0\0\0" + UUID
)
SET_V0 = (
    FIXED + b"\0\x03n\xc3\xa9" + b"\0\x01r" + b"\0\0\0\x02ab" + b"\0\0\0\x01c" + b"\x01\x02" + b"\x01\x03\x04"
    b"\0\0\0\x01\x05\x06"
    + b"\0\0\0\x02\0\0\0\x07\xff\xff\xff\xf8"
    + b"\0\0\0\x01"
    + UUID
    + b"\0\0\0\x02\0\x01s\0\0"
    b"\0\0\0\x07records"
)
SET_V1 = (
    FIXED + b"\x04n\xc3\xa9" + b"\x02r" + b"\x03ab" + b"\x02c" + b"\x01\x02\0" + b"\x01\x03\x04\0"
    b"\x02\x05\x06\0" + b"\x03\0\0\0\x07\xff\xff\xff\xf8" + b"\x02" + UUID + b"\x03\x02s\x01"
    b"\x08records" + b"\0"
)
NULLS_V0 = (
    bytes(30) + bytes(16) + b"\0\0" + b"\xff\xff" + bytes(4) + b"\xff" * 4 + b"\0\0" + b"\xff"
    + bytes(4) + b"\xff" * 4 + bytes(4) + bytes(4) + b"\xff" * 4
)  # fmt: skip
NULLS_V1 = bytes(46) + b"\x01\0\x01\0" + b"\0\0\0" + b"\xff" + b"\x01\0\x01\x01\0" + b"\0"


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [(SET, 0, SET_V0), (SET, 1, SET_V1), (NULLS, 0, NULLS_V0), (NULLS, 1, NULLS_V1)],
)
def test_bytes_of_every_kind_of_field(message: Everything, version: int, expected: bytes) -> None:
    assert message.encode(version) == expected
    for kind in KINDS:
        assert Everything.decode(kind(expected), version) == message
        assert Everything.decode(kind(b"xyz" + expected + b"after"), version, 3) == message
    assert Everything.decoder(version)(b"xyz" + expected + b"after", 3)[1] == 3 + len(expected)


def test_records_are_not_copied() -> None:
    buffer = bytearray(SET_V1)
    found = Everything.decode(buffer, 1).records
    assert isinstance(found, memoryview)
    position = SET_V1.index(b"records")
    buffer[position : position + 7] = b"RECORDS"
    assert bytes(found) == b"RECORDS"


def test_other_bytes_are_copied() -> None:
    buffer = bytearray(SET_V1)
    message = Everything.decode(memoryview(buffer), 1)
    buffer[:] = bytes(len(buffer))
    assert (message.blob, message.topic_id, message.ids) == (b"ab", UUID, [UUID])
    assert type(message.blob) is type(message.topic_id) is type(message.ids[0]) is bytes


# Tags


class Tagged(Message, kind="data", versions="0-2", flexible="1+"):
    plain: int = int8()
    late: int = int32("2+", default=-1, tag=3)
    text: str | None = string("1+", nullable="1+", tag=1)
    point: Point | None = struct(Point, "1+", tag=0)
    maybe: Point | None = struct(Point, "2+", nullable="2+", tag=5)
    numbers: list[int] = array(int8, "1+", tag=200, ignorable=True)


DEFAULTS = Tagged()


def test_defaults_are_not_sent() -> None:
    assert DEFAULTS.encode(1) == b"\0\0"
    assert Tagged(point=Point()).encode(1) == b"\0\0"


def test_tags_are_sent_in_their_order() -> None:
    message = Tagged(9, 1, "a", Point(1, 2), Point(3, 4), [7])
    expected = (
        b"\x09\x05" + b"\x00\x03\x01\x02\x00" + b"\x01\x02\x02a" + b"\x03\x04\0\0\0\x01"
        b"\x05\x04\x01\x03\x04\x00" + b"\xc8\x01\x02\x02\x07"
    )
    assert message.encode(2) == expected
    assert Tagged.decode(expected, 2) == message
    for size in range(len(expected)):
        with pytest.raises(DecodeError):
            Tagged.decode(expected[:size], 2)


def test_null_in_a_tag() -> None:
    message = Tagged(0, -1, None, None, None)
    assert message.encode(2) == b"\0\x02" + b"\x01\x01\x00" + b"\x05\x01\x00"
    assert Tagged.decode(message.encode(2), 2) == message


def test_unknown_tags_are_dropped() -> None:
    assert Tagged.decode(b"\x04\x03\x02\x02zz\x03\x01z\x07\x00", 1) == Tagged(4)
    assert Rows.decode(b"\x02\x01\x02\x01\x63\x04zzzz\x01\x09\x01z", 1) == Rows([Point(1, 2)])


@pytest.mark.parametrize(
    "damaged",
    [
        b"\0\x02\x03\0\x03\0",  # the same tag twice
        b"\0\x02\x03\0\x02\0",  # out of order
        b"\0\x02\x01\x02\x02a\x01\x02\x02a",  # a known tag twice
        b"\0\x01\x01\x03\x02az",  # size longer than the value
        b"\0\x01\x01\x01\x02a",  # size shorter than the value
        b"\0\x01\x02\x05zzzz",  # size beyond the end
        b"\0\xff\xff\xff\xff\x0f",  # more tags than bytes
    ],
)
def test_a_malformed_tag_section_is_refused(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        Tagged.decode(damaged, 2)


# Encoding values that a version cannot hold


class Versioned(Message, kind="data", versions="0-3", flexible="none"):
    old: int = int32("0-1", default=-1)
    new: str | None = string("2+", nullable="3+", default=None)
    hint: int = int32("2+", ignorable=True)
    rows: list[Point] = array(Point, "1+")
    inner: Point = struct(Point, "2+")


def test_a_field_that_is_set_outside_its_versions_is_refused() -> None:
    assert Versioned(old=5).encode(1)
    for message, version in [
        (Versioned(old=5, new=""), 2),
        (Versioned(new=""), 1),
        (Versioned(rows=[Point()]), 0),
        (Versioned(inner=Point(1, 0)), 1),
    ]:
        with pytest.raises(ValueError, match="not in this version"):
            message.encode(version)


def test_an_ignorable_field_is_left_out() -> None:
    assert Versioned(hint=9).encode(0) == Versioned().encode(0)


def test_null_in_a_field_that_is_not_nullable() -> None:
    with pytest.raises(ValueError, match="new may not be null"):
        Versioned(new=None).encode(2)
    assert Versioned(new=None).encode(3).startswith(b"\xff\xff")


@pytest.mark.parametrize(
    "message",
    [
        Everything(small=128),
        Everything(port=-1),
        Everything(offset=2**63),
        Everything(topic_id=b"short"),
        Everything(topic_id=bytes(17)),
        Everything(ids=[b""]),
        Everything(names=["\ud800"]),
        Everything(numbers=[2**31]),
    ],
)
def test_a_value_out_of_bounds_is_refused_and_leaves_nothing_behind(message: Everything) -> None:
    for version in (0, 1):
        out, ranges = bytearray(b"before"), [(0, Range(1))]
        with pytest.raises(ValueError, match=f"Everything v{version}"):
            message.encode_into(version, out, ranges)  # type: ignore[arg-type]
        assert out == b"before"
        assert len(ranges) == 1


# File ranges


class Range:
    def __init__(self, size: int) -> None:
        self.size = size


class Part(Struct):
    records: Records | None = records(nullable="0+")
    after: int = int8()


class ResponseWithRecords(Message, kind="data", versions="0-1", flexible="1+"):
    parts: list[Part] = array(Part)


@pytest.mark.parametrize("version", [0, 1])
def test_a_file_range_leaves_a_hole(version: int) -> None:
    data = [b"x" * 300, b"", b"yy"]
    first, empty, last = Range(300), Range(0), Range(2)
    message = ResponseWithRecords([Part(first, 1), Part(empty, 2), Part(None, 3), Part(last, 4)])
    out = bytearray(b"head")
    ranges: list[tuple[int, SizedRange]] = []
    message.encode_into(version, out, ranges)
    assert [one for _, one in ranges] == [first, last]
    whole = bytearray(out)
    for position, one in reversed(ranges):
        whole[position:position] = data[0] if one is first else data[2]
    in_memory = ResponseWithRecords(
        [Part(data[0], 1), Part(data[1], 2), Part(None, 3), Part(memoryview(data[2]), 4)]
    )
    assert whole == b"head" + in_memory.encode(version)


def test_a_file_range_needs_encode_into() -> None:
    with pytest.raises(ValueError, match="encode_into"):
        ResponseWithRecords([Part(Range(1))]).encode(0)


# Errors that help


def test_an_error_names_the_field() -> None:
    with pytest.raises(
        DecodeError, match=r"ResponseWithRecords v0: parts\.records: 9 bytes where 1 are left"
    ):
        ResponseWithRecords.decode(b"\0\0\0\x01\0\0\0\x09\0", 0)
    with pytest.raises(DecodeError, match="Everything v0: cut short at 10 bytes"):
        Everything.decode(bytes(10), 0)


def test_generated_source_shows_in_tracebacks() -> None:
    message: Any = Rows([object()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="Rows v0") as caught:
        message.encode(0)
    cause = caught.value.__cause__
    assert cause is not None
    shown = "".join(traceback.format_exception(cause))
    assert "<oncelog" in shown
    assert "pack_bb(s" in shown
