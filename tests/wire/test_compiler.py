"""The compiled functions: all kinds of fields, refused values, file ranges, tracebacks.

Expected bytes are written by hand after KIP-482 and the protocol guide.
"""

import struct as struct_module
import traceback
from typing import Any

import pytest

from oncelog.wire.compiler import ARRAY_LENGTH_MAX, REQUEST_ELEMENTS_MAX, UNCHECKED_COUNT_MAX
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import (
    Buffer,
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

KINDS = (bytes, bytearray, memoryview)
UUID = bytes(range(16))


class Point(Struct):
    x: int = int8()
    y: int = int8()


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


# Lengths


class Texts(Message, kind="data", versions="0-1", flexible="1+"):
    text: str = string(nullable="none")
    maybe: str | None = string(nullable="0+")


class Blobs(Message, kind="data", versions="0-1", flexible="1+"):
    blob: bytes = bytes_()
    maybe: bytes | None = bytes_(nullable="0+")


class Batches(Message, kind="data", versions="0-1", flexible="1+"):
    batches: Buffer | None = records()


class Rows(Message, kind="data", versions="0-1", flexible="1+"):
    rows: list[Point] = array(Point)


class Numbers(Message, kind="data", versions="0-1", flexible="1+"):
    numbers: list[int] = array(int64)


class Ids(Message, kind="data", versions="0-1", flexible="1+"):
    ids: list[Uuid] = array(uuid)


class Names(Message, kind="data", versions="0-1", flexible="1+"):
    names: list[str] = array(string)


def compact(length: int) -> bytes:
    """An unsigned varint of length + 1."""
    value, out = length + 1, b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


SIZED = (Texts, Blobs, Batches, Rows, Numbers, Ids, Names)
LENGTHS = [-(2**31), -3, -2, -1, 20, 1000, 2**31 - 1]


@pytest.mark.parametrize("cls", SIZED)
@pytest.mark.parametrize("length", LENGTHS)
def test_an_impossible_length_is_refused(cls: type[Message], length: int) -> None:
    if cls is not Texts:
        with pytest.raises(DecodeError):
            cls.decode(struct_module.pack(">i", length) + bytes(15), 0)
    elif length >= -(2**15) and length < 2**15:
        with pytest.raises(DecodeError):
            cls.decode(struct_module.pack(">h", length) + bytes(15), 0)
    if length >= -1:
        with pytest.raises(DecodeError):
            cls.decode(compact(length) + bytes(15), 1)


@pytest.mark.parametrize("cls", [Rows, Numbers, Ids, Names])
def test_a_count_is_refused_before_its_elements_are_read(cls: type[Message]) -> None:
    for count in (100, 2**31 - 1):
        with pytest.raises(DecodeError, match=f"{count} elements in"):
            cls.decode(struct_module.pack(">i", count) + bytes(50), 0)
        with pytest.raises(DecodeError, match=f"{count} elements in"):
            cls.decode(compact(count) + bytes(50), 1)


@pytest.mark.parametrize("kind", ["h", "i"])
@pytest.mark.parametrize("length", [-2, -3, -100])
def test_only_minus_one_is_null(kind: str, length: int) -> None:
    cls: type[Message] = Texts if kind == "h" else Blobs
    first = struct_module.pack(">" + kind, 0)
    assert cls.decode(first + struct_module.pack(">" + kind, -1), 0)
    with pytest.raises(DecodeError):
        cls.decode(first + struct_module.pack(">" + kind, length), 0)


@pytest.mark.parametrize("count", [0, 1, UNCHECKED_COUNT_MAX, UNCHECKED_COUNT_MAX + 1, 126, 127, 128, 20_000])
def test_arrays_of_any_size(count: int) -> None:
    rows = Rows([Point(n % 100, 1) for n in range(count)])
    points = b"".join(bytes([n % 100, 1]) for n in range(count))
    assert rows.encode(0) == struct_module.pack(">i", count) + points
    tagged = b"".join(bytes([n % 100, 1, 0]) for n in range(count))
    assert rows.encode(1) == compact(count) + tagged + b"\0"
    assert Rows.decode(rows.encode(0), 0) == Rows.decode(rows.encode(1), 1) == rows
    for version in (0, 1):
        encoded = rows.encode(version)
        with pytest.raises(DecodeError):
            Rows.decode(encoded[:-1], version)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 32767])
def test_strings_of_any_length(length: int) -> None:
    text = "x" * length
    assert Texts(text).encode(0) == struct_module.pack(">h", length) + text.encode() + b"\0\0"
    assert Texts(text).encode(1) == compact(length) + text.encode() + b"\x01\0"
    for version in (0, 1):
        assert Texts.decode(Texts(text).encode(version), version).text == text


def test_a_string_is_at_most_32767_bytes_long() -> None:
    for version in (0, 1):
        with pytest.raises(ValueError, match="Texts v"):
            Texts("é" * 16384).encode(version)
    with pytest.raises(DecodeError, match="32768"):
        Texts.decode(compact(32768) + bytes(40000), 1)


def test_an_array_has_a_largest_length() -> None:
    count = ARRAY_LENGTH_MAX + 1
    with pytest.raises(DecodeError, match="more than"):
        Names.decode(struct_module.pack(">i", count) + bytes(2 * count), 0)


class Boxes(Struct):
    numbers: list[int] = array(int8)
    names: list[str] = array(string)


class Asked(Message, kind="request", versions="0-1", flexible="1+"):
    boxes: list[Boxes] = array(Boxes)
    late: list[int] = array(int32, "1+", tag=0)


class ResponseWithBoxes(Message, kind="response", versions="0-1", flexible="1+"):
    boxes: list[Boxes] = array(Boxes)
    late: list[int] = array(int32, "1+", tag=0)


def boxed(total: int, version: int, where: str) -> bytes:
    """A message of so many elements: mostly boxes, or what is in one of ten."""
    inside = {"numbers": b"\1", "names": (b"\1" if version else b"\0\0")}

    def count(n: int) -> bytes:
        return compact(n) if version else struct_module.pack(">i", n)

    boxes = [(0, 0)] * (total if where == "boxes" else 10)
    if where != "boxes":
        boxes[7] = (total - 10, 0) if where == "numbers" else (0, total - 10)
    end = b"\0" if version else b""
    body = b"".join(
        count(some) + inside["numbers"] * some + count(more) + inside["names"] * more + end
        for some, more in boxes
    )
    return count(len(boxes)) + body + end


@pytest.mark.parametrize("where", ["boxes", "numbers", "names"])
@pytest.mark.parametrize("version", [0, 1])
def test_a_request_has_a_largest_number_of_elements(version: int, where: str) -> None:
    limit = REQUEST_ELEMENTS_MAX
    Asked.decode(boxed(limit, version, where), version)
    with pytest.raises(DecodeError, match=f"more than {limit} elements"):
        Asked.decode(boxed(limit + 1, version, where), version)
    ResponseWithBoxes.decode(boxed(limit + 1, version, where), version)  # responses have no limit


def test_tags_are_elements() -> None:
    """Unknown and known tags, in any struct."""
    limit = REQUEST_ELEMENTS_MAX

    def varint(value: int) -> bytes:
        return compact(value - 1)

    def tags(count: int) -> bytes:
        return varint(count) + b"".join(varint(tag + 1) + b"\0" for tag in range(count))

    unknown_inside = compact(1) + compact(0) + compact(0)
    Asked.decode(unknown_inside + tags(limit - 1) + b"\0", 1)
    for tagged in (unknown_inside + tags(limit) + b"\0", compact(0) + tags(limit + 1)):
        with pytest.raises(DecodeError, match=f"more than {limit} elements and tags"):
            Asked.decode(tagged, 1)
    late = b"\1\0" + varint(4 * limit + 3) + compact(limit) + bytes(4 * limit)
    with pytest.raises(DecodeError, match="more than"):
        Asked.decode(compact(0) + late, 1)


def test_text_that_is_not_utf8_is_refused() -> None:
    for damaged in (b"\0\x02\xff\xfe\0\0", b"\0\x01\xc3\0\0", b"\0\x03\xed\xa0\x80\0\0"):
        with pytest.raises(DecodeError, match="Texts v0"):
            Texts.decode(damaged, 0)


@pytest.mark.parametrize(
    "varint", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01", b"\x80\x80\x80\x80\x80\x00"]
)
def test_a_varint_that_does_not_fit_is_refused(varint: bytes) -> None:
    for cls in (Texts, Blobs, Batches, Rows):
        with pytest.raises(DecodeError, match="varint"):
            cls.decode(varint + bytes(100), 1)


def test_a_varint_may_be_longer_than_it_needs() -> None:
    assert Texts.decode(b"\x82\x80\x00a\x01\0", 1) == Texts("a", "")


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
