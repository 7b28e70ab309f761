"""The walk's readers against a simple reader of the format, with records of clients and with malformed ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire import walk as readers
from oncelog.wire.batch import HEADER_SIZE
from oncelog.wire.errors import DecodeError
from oncelog.wire.walk import WalkResult, walk
from tests.wire import batches
from tests.wire.batches import ENCODERS, Row, varint

BASE = 1_700_000_000_000


class Malformed(Exception):  # noqa: N818
    pass


class Plain:
    """Reads ``DefaultRecord`` byte by byte after its description; shares no code with wire."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise Malformed
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, bits: int) -> int:
        raw = 0
        for index in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            raw += (byte % 128) << (7 * index)
            if byte < 128:
                raw &= (1 << bits) - 1
                return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2
        raise Malformed

    def field(self) -> bool:
        size = self.number(32)
        if size >= 0:
            self.take(size)
        return size >= 0

    def record(self) -> tuple[int, int, bool]:
        whole = self.take(self.number(32))
        inner = Plain(whole)
        inner.take(1)
        timestamp, offset = inner.number(64), inner.number(32)
        has_key = inner.field()
        inner.field()
        headers = inner.number(32)
        if not 0 <= headers <= len(whole):
            raise Malformed
        for _ in range(headers):
            if not inner.field():
                raise Malformed
            inner.field()
        if inner.position != len(whole):
            raise Malformed
        return timestamp, offset, has_key


def plain_walk(data: bytes, count: int) -> WalkResult | None:
    """The expected result of ``walk``, or None if it must refuse."""
    reader = Plain(data)
    try:
        rows = [reader.record() for _ in range(count)]
    except Malformed:
        return None
    if reader.position != len(data):
        return None
    found = WalkResult()
    found.max_delta = max((row[0] for row in rows), default=None)
    found.min_delta = min([0, *(row[0] for row in rows)])
    found.has_null_key = not all(row[2] for row in rows)
    found.sequential = [row[1] for row in rows] == list(range(count))
    return found


def fast_walk(data: bytes | memoryview, count: int) -> WalkResult | None:
    try:
        return walk(memoryview(data), count)
    except DecodeError:
        return None


def payload(rows: list[Row]) -> bytes:
    return bytes(batches.encode_kafka_python(rows)[HEADER_SIZE:])


def alike(
    count: int,
    size: int,
    key: bytes | None = None,
    step_ms: float = 0.1,
    spread: int = 0,
    start_ms: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> bytes:
    chance = random.Random(1)
    times = [BASE + (int(i * step_ms) + start_ms if i else 0) for i in range(count)]
    return payload([(time, key, bytes(size + chance.randint(0, spread)), [*headers]) for time in times])


HEADERS: tuple[tuple[str, bytes | None], ...] = (("trace", b"0123456789abcdef"), ("", None), ("k", b""))


@settings(max_examples=150, deadline=None)
@given(batches.rows, st.sampled_from(ENCODERS))
def test_mixed_records(rows: list[Row], encode: Callable[..., bytearray]) -> None:
    data = bytes(encode(rows)[HEADER_SIZE:])
    assert walk(data, len(rows)) == plain_walk(data, len(rows))
    for count in (len(rows) - 1, len(rows) + 1):
        assert fast_walk(data, count) is None


FIXED = {
    f"{count} of {size} bytes, {name}, every {step_ms} ms": (count, size, key, step_ms)
    for count in (1, 2, 30, 65, 200)
    for size in (0, 57, 61, 62, 100)
    for name, key in (("no key", None), ("key", b"k" * 16), ("long key", b"k" * 64))
    for step_ms in (0.1, 40)
}


@pytest.mark.parametrize("name", FIXED)
def test_records_of_one_size(name: str) -> None:
    count, size, key, step_ms = FIXED[name]
    data = alike(count, size, key, step_ms)
    assert walk(data, count) == plain_walk(data, count)
    assert fast_walk(data[:-1], count) is None
    assert fast_walk(data + b"\0", count) is None


@pytest.mark.parametrize(
    ("count", "key"),
    [*((count, None) for count in (8191, 8192, 8193, 8300, 20_000)), (8300, b"kkk"), (8300, b"k" * 64)],
)
@pytest.mark.parametrize("spread", [0, 40])
def test_offset_deltas_of_three_bytes(count: int, spread: int, key: bytes | None) -> None:
    data = alike(count, 3, key, spread=spread)
    assert walk(data, count) == plain_walk(data, count)


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 9000])
@pytest.mark.parametrize("count", [1, 2, 40, 100])
@pytest.mark.parametrize("spread", [0, 9])
def test_keys_of_any_length(length: int, count: int, spread: int) -> None:
    data = alike(count, 20, b"k" * length, spread=spread)
    found = walk(data, count)
    assert found == plain_walk(data, count)
    assert not found.has_null_key


def test_a_third_byte_of_an_offset_delta_before_a_key() -> None:
    for key in (b"\x06kkk", varint(64) + b"k" * 64):
        for wrong in (0, 2, 3):
            rows = [b"\0\0" + varint(i) + key + varint(i % 50) + bytes(i % 50) + b"\0" for i in range(8300)]
            rows[8250] = rows[8250].replace(varint(8250), varint(8250)[:2] + bytes([wrong]))
            data = b"".join(map(crafted, rows))
            assert fast_walk(data, 8300) == plain_walk(data, 8300)


@pytest.mark.slow
def test_more_records_than_the_fast_readers_support() -> None:
    count = (1 << 20) + 100
    one = [b"\x00\x00", b"\x01\x01\x00"]  # attributes and timestamp; null key, null value, no headers
    data = b"".join(
        varint(len(one[0]) + len(delta) + len(one[1])) + one[0] + delta + one[1]
        for delta in map(varint, range(count))
    )
    found = walk(data, count)
    assert (found.sequential, found.max_delta, found.has_null_key) == (True, 0, True)
    with pytest.raises(DecodeError):
        walk(data, count + 1)


@pytest.mark.parametrize("start_ms", [-70_000, -8193, -65, -64, -1, 63, 64, 8191, 8192, 70_000])
@pytest.mark.parametrize("spread", [0, 9])
@pytest.mark.parametrize("step_ms", [0.1, 50])
def test_timestamps_before_and_long_after_the_first(start_ms: int, spread: int, step_ms: float) -> None:
    data = alike(150, 100, step_ms=step_ms, start_ms=start_ms, spread=spread)
    found = walk(data, 150)
    assert found == plain_walk(data, 150)
    assert found.min_delta <= 0


def test_timestamps_that_fall_and_rise() -> None:
    chance = random.Random(3)
    for size in (40, 100):
        rows: list[Row] = [(BASE + chance.randint(-70, 70), None, bytes(size), []) for _ in range(300)]
        assert walk(payload(rows), 300) == plain_walk(payload(rows), 300)


@pytest.mark.parametrize("size", [40, 100])
def test_the_latest_timestamp_stands_anywhere(size: int) -> None:
    for latest in (0, 1, 30, 62, 63, 64, 99):
        rows: list[Row] = [
            (BASE + (60 if i == latest else i // 2), None, bytes(size), []) for i in range(100)
        ]
        rows[0] = (BASE, None, bytes(size), [])
        assert walk(payload(rows), 100) == plain_walk(payload(rows), 100)


@pytest.mark.parametrize("at", [1, 63, 64, 70, 5000, 8191, 8192, 9000])
@pytest.mark.parametrize("wrong", [-1, 1, 64, 128, 8192])
def test_one_offset_delta_out_of_order(at: int, wrong: int) -> None:
    deltas = [i + wrong if i == at else i for i in range(at + 40)]
    data = b"".join(crafted(b"\0\0" + varint(delta) + b"\1\1\0") for delta in deltas)
    found = walk(data, len(deltas))
    assert not found.sequential
    assert found == plain_walk(data, len(deltas))


def mutate(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2])):
        # Values and keys are zeros or k: half of the changes hit other bytes.
        at = chance.randrange(len(out))
        if chance.random() < 0.5:
            telling = [i for i, byte in enumerate(out) if byte not in (0, 107)] or [at]
            at = chance.choice(telling)
        kind = chance.random()
        if kind < 0.6:
            near = [out[at] ^ 1, out[at] ^ 128, (out[at] + 2) % 256, (out[at] - 2) % 256]
            out[at] = chance.choice([0, 1, 2, 127, 128, 129, 255, *near])
        elif kind < 0.75:
            del out[at]
        elif kind < 0.9:
            out.insert(at, chance.choice([0, 1, 128]))
        else:
            del out[at:]
        if not out:
            return b""
    return bytes(out)


@pytest.mark.parametrize(
    ("count", "size", "spread"),
    [(1, 20, 0), (1, 200, 0), (2, 60, 4), (40, 20, 0), (40, 60, 5), (90, 100, 40)],
)
@pytest.mark.parametrize("key", [None, b"kkk", b"k" * 70])
@pytest.mark.parametrize("headers", [(), HEADERS[:1], HEADERS])
def test_damaged_records(
    count: int, size: int, spread: int, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    chance = random.Random(f"{count} {size} {spread} {key!r} {len(headers)}")
    good = alike(count, size, key, spread=spread, step_ms=1, headers=headers)
    refused = 0
    for _ in range(120):
        data = mutate(good, chance)
        theirs = plain_walk(data, count)
        refused += theirs is None
        assert fast_walk(data, count) == theirs, data.hex()
    assert 0 < refused < 120


def test_every_changed_byte_for_both_fast_readers() -> None:
    for spread in (0, 5):
        good = alike(70, 66, b"kk", spread=spread)
        for at in [*range(90), *range(len(good) - 80, len(good))]:
            for byte in (good[at] ^ 1, good[at] ^ 2, good[at] ^ 128):
                data = good[:at] + bytes([byte]) + good[at + 1 :]
                assert fast_walk(data, 70) == plain_walk(data, 70), (at, byte)


@pytest.mark.parametrize(("count", "size"), [(1, 5), (1, 8150), (40, 5), (40, 66), (100, 66)])
@pytest.mark.parametrize("key", [None, b"kkk", b"k" * 60, b"k" * 70])
@pytest.mark.parametrize("headers", [(), HEADERS])
def test_the_same_damage_to_every_record(
    count: int, size: int, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    good = alike(count, size, key, step_ms=0, headers=headers)
    # Records are equal but for their offset deltas; deltas of two bytes change the length.
    first_block = good if count <= 64 else good[: len(alike(64, size, key, step_ms=0, headers=headers))]
    stride = len(first_block) // min(count, 64)
    value_at = 6 + len(key or b"")
    last = 32 if headers else 2
    for at in [*range(7), *range(value_at - 2, value_at + 3), *range(stride - last, stride)]:
        for byte in (0, 1, 2, 3, 127, 128, 129, 130, 255, good[at] ^ 1, good[at] ^ 128, (good[at] + 2) % 256):
            data = bytearray(good)
            for start in range(0, len(first_block), stride):
                data[start + at] = byte
            assert fast_walk(bytes(data), count) == plain_walk(bytes(data), count), (at, byte)


@pytest.mark.parametrize("size", [0, 5, 56, 57, 62, 63, 64, 65, 8150, 9000])
def test_every_changed_byte_of_a_record_as_long_as_one_before(size: int) -> None:
    good = alike(1, size, step_ms=0)
    for at in [*range(min(12, len(good))), len(good) - 1]:
        for byte in range(256):
            data = good[:at] + bytes([byte]) + good[at + 1 :]
            for batch in (good, data, memoryview(data)):
                assert fast_walk(batch, 1) == plain_walk(bytes(batch), 1), (at, byte)


def crafted(body: bytes, length: bytes | None = None) -> bytes:
    return (varint(len(body)) if length is None else length) + body


@pytest.mark.parametrize("count", [1, 2, 40])
def test_records_that_only_a_careless_reader_accepts(count: int) -> None:
    """Lengths that are consistent only if a varint's continuation bit counts as part of its value."""
    tail = varint(20) + bytes(20) + b"\0"
    value = bytes(8130)
    big = b"\0\0" + varint(60) + b"k" * 60 + varint(len(value)) + value + b"\0"
    for many in (
        # A key length of two bytes, read as one of 64 + 3.
        [crafted(b"\0\0" + varint(i) + bytes([128 + 6]) + bytes(67) + tail) for i in range(count)],
        # One of three bytes, and one of two that says more than there is.
        [crafted(b"\0\0" + varint(i) + b"\x86\x80\1" + bytes(8195) + tail) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\x86\x80" + bytes(67) + tail) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\xfe\x7f" + bytes(67) + tail) for i in range(count)],
        # Key lengths that need not have taken two bytes, also those of null and of what is negative beside it.
        [crafted(b"\0\0" + varint(i) + b"\x86\0" + bytes(3) + tail) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\x81\0" + tail) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\x83\1" + tail) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\x83\1" + bytes(66) + tail) for i in range(count)],
        # The same with a key length that is negative and not null.
        [crafted(b"\0\0" + varint(i) + bytes([3]) + bytes(1) + tail) for i in range(count)],
        # A length of three bytes, the third of which is read as the attributes.
        [crafted(big, varint(len(big) + 1)) for i in range(count)],
        # A timestamp delta of one byte where two were, so that the offset delta seems to follow.
        [crafted(b"\0" + bytes([4, 1]) + varint(i) + b"\1" + tail) for i in range(count)],
        [
            crafted(b"\0" + (b"\x84\1" if i < 20 else b"\4\1") + varint(i) + b"\1" + tail)
            for i in range(count)
        ],
        [crafted(b"\0" + (b"\4" if i < 20 else b"\x84") + varint(i) + b"\1" + tail) for i in range(count)],
        # A value length that goes on, over a value that is as long as the first byte alone says.
        [crafted(b"\0\0" + varint(i) + b"\1" + b"\x80\x80" + b"\0") for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\1" + b"\x80\x80\x80" + b"\0") for i in range(count)],
        # Header counts that are not 0 where the record ends.
        [crafted(b"\0\0" + varint(i) + b"\1" + varint(20) + bytes(20) + b"\1") for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\1" + varint(20) + bytes(20) + b"\2") for i in range(count)],
        # A header count that is negative, and half a header.
        [crafted(b"\0\0" + varint(i) + b"\1\0" + b"\1" + b"\4ab") for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\1\0" + b"\3" + b"\4ab\2c\4ab") for i in range(count)],
        # Missing headers after an existing one.
        [crafted(b"\0\0" + varint(i) + b"\1\0" + (b"\2" if i else b"\2\2a\2b")) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\2k\0" + (b"\2" if i else b"\2\2a\2b")) for i in range(count)],
        [crafted(b"\0\0" + varint(i) + b"\2k\0" + (b"\0" if i else b"\2\2a\2b")) for i in range(count)],
    ):
        data = b"".join(many)
        assert fast_walk(data, count) == plain_walk(data, count)


def test_records_with_and_without_headers() -> None:
    chance = random.Random(4)
    rows: list[Row] = [
        (BASE + i, b"k" if i % 5 else None, bytes(50 + i % 30), [*HEADERS[: chance.choice([0, 0, 1, 3])]])
        for i in range(400)
    ]
    assert walk(payload(rows), 400) == plain_walk(payload(rows), 400)
    many: list[Row] = [(BASE, None, b"v", [("h", b"x")] * (i % 70)) for i in range(100)]
    assert walk(payload(many), 100) == plain_walk(payload(many), 100)
    same: list[Row] = [(BASE, None, b"v", [("h", b"x")] * 9)] * 100
    assert walk(payload(same), 100) == plain_walk(payload(same), 100)
    long: list[Row] = [(BASE, None, b"v", [("h" * 70, b"x" * 200)])] * 100
    assert walk(payload(long), 100) == plain_walk(payload(long), 100)


def test_a_null_key_before_a_record_that_reads_two_ways() -> None:
    """The second record looks like one with a timestamp delta of two bytes until that is checked."""
    first = crafted(b"\0" + b"\x84\1" + varint(0) + b"\1" + varint(3) + b"abc" + b"\0")
    second = crafted(b"\0" + b"\x04\1" + varint(1) + b"\2" + b"\x08" + varint(3) + b"abc" + b"\0")
    found = walk(first + second, 2)
    assert found.has_null_key
    assert found == plain_walk(first + second, 2)


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [
        ("run", partial(alike, 500, 100), 500),
        ("run with keys", partial(alike, 500, 100, b"key"), 500),
        ("run with long keys", partial(alike, 500, 100, b"key" * 50), 500),
        ("run over 64 ms steps", partial(alike, 500, 100, step_ms=0.5), 500),
        ("short varints", partial(alike, 500, 100, spread=40), 500),
        ("short varints with keys", partial(alike, 500, 100, b"key" * 4, spread=40), 500),
        ("short varints with long keys", partial(alike, 500, 100, b"key" * 50, spread=40), 500),
        (
            "short varints with long keys and headers",
            partial(alike, 500, 9, b"key" * 50, spread=40, headers=HEADERS),
            500,
        ),
        ("short varints, short records", partial(alike, 500, 5, spread=20), 500),
        ("three byte deltas", partial(alike, 17_000, 3, spread=20), 17_000),
        ("three byte deltas, keys", partial(alike, 17_000, 3, b"k", spread=20), 17_000),
        ("three byte deltas, long keys", partial(alike, 17_000, 3, b"k" * 70, spread=20), 17_000),
        ("run with headers", partial(alike, 500, 100, b"key", headers=HEADERS[:1]), 500),
        ("short varints with headers", partial(alike, 500, 100, b"key", spread=40, headers=HEADERS), 500),
        (
            "short varints with headers, no keys",
            partial(alike, 500, 100, spread=40, headers=HEADERS[:1]),
            500,
        ),
        ("one", partial(alike, 1, 100), 1),
        ("one with a key", partial(alike, 1, 100, b"key"), 1),
        ("one with a long key", partial(alike, 1, 100, b"key" * 50), 1),
        ("one short", partial(alike, 1, 5), 1),
    ],
)
def test_usual_records_are_not_left_to_the_slowest_reader(
    name: str, make: Callable[[], bytes], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts the calls of each reader instead of measuring time."""
    calls = {"_scan_one": 0, "read_short_varints": 0}
    for reader_name in calls:
        reader = getattr(readers, reader_name)

        def counted(
            *given: object, reader_name: str = reader_name, reader: Callable[..., object] = reader
        ) -> object:
            calls[reader_name] += 1
            return reader(*given)

        monkeypatch.setattr(readers, reader_name, counted)
    data = make()
    assert walk(data, count) == plain_walk(data, count)
    if name.startswith(("run", "one")):
        assert calls["read_short_varints"] <= 1
    assert calls["_scan_one"] <= max(count // 500, 1 if "headers" in name else 0)


def test_no_records() -> None:
    found = walk(b"", 0)
    assert (found.max_delta, found.min_delta, found.has_null_key, found.sequential) == (None, 0, False, True)
    with pytest.raises(DecodeError):
        walk(b"\0", 0)
    with pytest.raises(DecodeError):
        walk(b"", 1)


def test_a_count_without_end_stops_at_the_end_of_the_records() -> None:
    with pytest.raises(DecodeError, match="record 3"):
        walk(alike(3, 10), 2**31 - 1)
