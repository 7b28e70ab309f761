"""Lengths of arrays, strings and varints, which a peer may have made up."""

import struct as struct_module

import pytest

from oncelog.wire.compiler import ARRAY_LENGTH_MAX, REQUEST_ELEMENTS_MAX, TAGS_MAX, UNCHECKED_COUNT_MAX
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    Uuid,
    array,
    bytes_,
    int8,
    int32,
    int64,
    records,
    string,
    uuid,
)
from tests.wire.points import Point, Rows


class Texts(Message, kind="data", versions="0-1", flexible="1+"):
    text: str = string(nullable="none")
    maybe: str | None = string(nullable="0+")


class Blobs(Message, kind="data", versions="0-1", flexible="1+"):
    blob: bytes = bytes_()
    maybe: bytes | None = bytes_(nullable="0+")


class Batches(Message, kind="data", versions="0-1", flexible="1+"):
    batches: Buffer | None = records()


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


@pytest.mark.slow
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
    Asked.decode(unknown_inside + tags(TAGS_MAX) + b"\0", 1)
    for tagged in (unknown_inside + tags(TAGS_MAX + 1) + b"\0", compact(0) + tags(TAGS_MAX + 1)):
        for message in (Asked, ResponseWithBoxes):
            with pytest.raises(DecodeError, match=f"{TAGS_MAX + 1} tags, more than {TAGS_MAX}"):
                message.decode(tagged, 1)
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
