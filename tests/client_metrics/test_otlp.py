"""The reader of OpenTelemetry's metrics. What stock clients send, is read in ``compat_tests/client_metrics``."""

from __future__ import annotations

import random

import pytest

from oncelog.broker.client_metrics.otlp import (
    FIELDS_MAX,
    FIELDS_PER_STEP,
    POINTS_MAX,
    Point,
    TooManyError,
    read_metrics,
)
from oncelog.wire.errors import DecodeError
from tests.common.otlp import GAUGE, NAMED, TIMES, attribute, field, fixed, metrics, number, varint
from tests.harness.steps import count_lines


def read(data: bytes) -> list[Point]:
    return [point for point in read_metrics(data) if point is not None]


def only(data: bytes) -> Point:
    [point] = read(data)
    return point


def test_a_gauge() -> None:
    assert only(GAUGE) == Point(
        "a.b", "what it is", "ms", "gauge", 1.5, None, False, {}, {"who": "me"}, start_ms=3, time_ms=5
    )


@pytest.mark.parametrize(("temporality", "is_delta"), [(0, False), (1, True), (2, False)])
def test_a_sum(temporality: int, is_delta: bool) -> None:
    body = field(1, TIMES, fixed(6, -7)) + number(2, temporality) + number(3, 1)
    point = only(metrics(NAMED + field(7, body)))
    assert (point.kind, point.value, point.is_delta) == ("sum", -7, is_delta)


def test_a_histogram() -> None:
    body = field(1, TIMES, fixed(4, 3), fixed(5, 6.0), field(6, bytes(16)), field(9, attribute("x", b"")))
    point = only(metrics(NAMED + field(9, body)))
    assert (point.kind, point.value, point.values, point.attributes) == ("histogram", 6.0, 3, {"x": ""})


def test_attributes_of_all_types() -> None:
    values = {
        "text": field(1, b"t"),
        "flag": number(2, 1),
        "whole": number(3, -5),
        "double": fixed(4, 0.5),
        "list": field(5, b"\x01"),
    }
    attributes = [field(7, attribute(name, value)) for name, value in values.items()]
    point = only(metrics(NAMED + field(5, field(1, TIMES, fixed(4, 1.0), *attributes))))
    assert point.attributes == {"text": "t", "flag": True, "whole": -5, "double": 0.5, "list": "01"}


def test_several_points_of_several_metrics_and_unknown_fields() -> None:
    points = field(1, TIMES, fixed(4, 1.0)) + field(1, TIMES, fixed(4, 2.0))
    unknown = number(99, 5) + field(98, b"x") + varint(97 << 3 | 5) + bytes(4)
    data = metrics(NAMED + field(5, points) + unknown, field(1, b"c") + field(11, b"")) + unknown
    assert [(one.name, one.value) for one in read(data)] == [("a.b", 1.0), ("a.b", 2.0)]


def test_damaged_metrics_are_refused_or_read_but_never_more() -> None:
    rng = random.Random(1)
    for end in range(1, len(GAUGE)):
        with pytest.raises(DecodeError):
            read(GAUGE[:end])
    for _ in range(2000):
        damaged = bytearray(GAUGE)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read(bytes(damaged))
        except DecodeError:
            continue


STEPS = 100


def lines_of_steps(data: bytes) -> list[int]:
    """The lines of Python of the first `STEPS` steps."""
    steps = read_metrics(data)
    found: list[int] = []
    is_over = False

    def step() -> None:
        nonlocal is_over
        try:
            next(steps)
        except (StopIteration, TooManyError):
            is_over = True

    while not is_over and len(found) < STEPS:
        found.append(count_lines(step))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        metrics(NAMED + field(5, b"\x0a\x00" * (POINTS_MAX + 1))),
        metrics(NAMED + field(5, number(9, 0) * 500_000)),
        field(1, field(2, field(2) * 500_000)),
        metrics(NAMED + field(5, field(1, field(7, number(9, 0) * 400_000)))),
        metrics(resource=number(9, 0) * 500_000),
        b"\x0a\x00" * 500_000,
        field(1, b"\x0a\x00" * 450_000),
        field(1, b"\x12\x00" * 450_000),
        metrics(NAMED + field(5, field(1, field(7) * 450_000))),
    ],
)
def test_what_holds_very_much_is_read_in_small_steps_and_refused(data: bytes) -> None:
    assert len(data) < 1_500_000
    with pytest.raises(TooManyError):
        read(data)
    lines = lines_of_steps(data)
    assert max(lines) < 40 * FIELDS_PER_STEP
    assert len(lines) == STEPS


def test_a_large_push_of_a_client_is_read() -> None:
    one = NAMED + field(5, field(1, TIMES, fixed(4, 1.5), *[field(7, attribute("a", field(1, b"b")))] * 3))
    data = metrics(*[one] * (POINTS_MAX - 1))
    assert len(data) > 500_000
    assert len(read(data)) == POINTS_MAX - 1
    assert FIELDS_MAX > 10 * POINTS_MAX
