"""Reads metrics in the format of OpenTelemetry (``MetricsData`` of OTLP 1, in Protocol Buffers).

Only what clients of Kafka send is read: gauges, sums and histograms. Unknown fields are skipped.
Source: ``opentelemetry/proto/metrics/v1/metrics.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

from oncelog.wire.errors import DecodeError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of Protocol Buffers."""
VARINT_BYTES_MAX = 10
NANOS_PER_MS = 1_000_000

POINTS_MAX = 10_000
"""Values in one push: as many as fit into a push of the default size, with a name and a time each."""
FIELDS_MAX = 400_000
"""Fields in one push, in all its messages: forty for each value."""
FIELDS_PER_STEP = 100
"""Fields that are read without a break: about 0.1 ms."""

Value = int | float | str | bool


class Field(NamedTuple):
    """A field of a message."""

    number: int
    wire_type: int
    value: int | bytes
    """A number of 64 bits, or bytes."""


class TooManyError(DecodeError):
    """The metrics have more values or fields than one push may have; they may be well formed."""


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    description: str
    unit: str
    kind: str
    """``gauge``, ``sum`` or ``histogram``."""
    value: float | int
    """Of a histogram: the sum of its values."""
    values: int | None
    """Of a histogram: how many values it has."""
    is_delta: bool
    """Whether it counts what came since ``start_ms`` of the push before it."""
    attributes: dict[str, Value]
    resource: dict[str, Value]
    """The labels of the client."""
    start_ms: int
    time_ms: int


def read_metrics(data: bytes) -> Iterator[Point | None]:
    """Yield the values of all metrics, and None after each `FIELDS_PER_STEP` fields: others may have their turn.
    Raises DecodeError, TooManyError.
    """
    try:
        fields = _Fields()
        for field in fields.of(data):
            if field is None:
                yield None
            elif field.number == 1 and isinstance(field.value, bytes):
                yield from _resource_metrics(fields, field.value)
    except UnicodeDecodeError as error:
        raise DecodeError(f"metrics: {error}") from None


def _resource_metrics(fields: _Fields, data: bytes) -> Iterator[Point | None]:
    resources: list[bytes] = []
    scopes: list[bytes] = []
    for field in fields.of(data):
        if field is None:
            yield None
        elif isinstance(field.value, bytes) and field.number in (1, 2):
            (resources if field.number == 1 else scopes).append(field.value)
    resource: dict[str, Value] = {}
    for part in resources:
        for field in fields.of(part):
            if field is None:
                yield None
            elif field.number == 1 and isinstance(field.value, bytes):
                name, value = yield from _attribute(fields, field.value)
                resource[name] = value
    for scope in scopes:
        for field in fields.of(scope):
            if field is None:
                yield None
            elif field.number == 2 and isinstance(field.value, bytes):
                yield from _metric(fields, field.value, resource)


_KINDS = {5: "gauge", 7: "sum", 9: "histogram"}
DELTA = 1
"""``AGGREGATION_TEMPORALITY_DELTA``."""


def _metric(fields: _Fields, data: bytes, resource: dict[str, Value]) -> Iterator[Point | None]:
    texts = {1: "", 2: "", 3: ""}
    bodies: list[tuple[str, bytes]] = []
    for field in fields.of(data):
        if field is None:
            yield None
        elif isinstance(field.value, bytes):
            if field.number in texts:
                texts[field.number] = field.value.decode()
            elif field.number in _KINDS:
                bodies.append((_KINDS[field.number], field.value))
    for kind, body in bodies:
        points: list[bytes] = []
        is_delta = False
        for field in fields.of(body):
            if field is None:
                yield None
            elif field.number == 1 and isinstance(field.value, bytes):
                fields.count_point()
                points.append(field.value)
            elif field.number == 2 and field.value == DELTA:
                is_delta = True
        for point in points:
            yield (yield from _point(fields, point, texts, kind, is_delta, resource))


def _point(
    fields: _Fields, data: bytes, texts: dict[int, str], kind: str, is_delta: bool, resource: dict[str, Value]
) -> Generator[None, None, Point]:
    times = {2: 0, 3: 0}
    value: float | int = 0
    values = None
    attributes: dict[str, Value] = {}
    is_histogram = kind == "histogram"
    for field in fields.of(data):
        if field is None:
            yield None
            continue
        number, wire_type, found = field
        if isinstance(found, bytes):
            if number == (9 if is_histogram else 7):
                name, attribute = yield from _attribute(fields, found)
                attributes[name] = attribute
        elif wire_type == FIXED64:
            if number in times:
                times[number] = found
            elif number == (5 if is_histogram else 4):
                value = _double(found)
            elif is_histogram and number == 4:
                values = found
            elif not is_histogram and number == 6:
                value = _signed(found)
    return Point(
        texts[1],
        texts[2],
        texts[3],
        kind,
        value,
        values,
        is_delta,
        attributes,
        resource,
        times[2] // NANOS_PER_MS,
        times[3] // NANOS_PER_MS,
    )


def _attribute(fields: _Fields, data: bytes) -> Generator[None, None, tuple[str, Value]]:
    """Return key and value of a ``KeyValue``; lists and tables are shown as their bytes in hexadecimal."""
    key, value = "", b""
    for field in fields.of(data):
        if field is None:
            yield None
        elif field.number == 1 and isinstance(field.value, bytes):
            key = field.value.decode()
        elif field.number == 2 and isinstance(field.value, bytes):
            value = field.value
    shown: Value = ""
    is_found = False
    for field in fields.of(value):
        if field is None:
            yield None
        elif not is_found:
            is_found, shown = _shown(field)
    return key, shown


def _shown(field: Field) -> tuple[bool, Value]:
    """Return whether the field is an ``AnyValue``'s value, and the value."""
    number, _, found = field
    if isinstance(found, bytes):
        return True, found.decode() if number == 1 else found.hex()
    if number == 2:
        return True, bool(found)
    if number == 3:
        return True, _signed(found)
    if number == 4:
        return True, _double(found)
    return False, ""


class _Fields:
    """Reads the fields of messages, and counts them."""

    __slots__ = ("_fields", "_points")

    def __init__(self) -> None:
        self._fields = self._points = 0

    def count_point(self) -> None:
        """Raises TooManyError for one more than `POINTS_MAX`."""
        self._points += 1
        if self._points > POINTS_MAX:
            raise TooManyError(f"metrics: more than {POINTS_MAX} values")

    def of(self, data: bytes) -> Iterator[Field | None]:
        """Yield the fields of a message, and None after each `FIELDS_PER_STEP` fields of any message. Raises
        DecodeError, TooManyError.
        """
        at, end = 0, len(data)
        if not data and self._is_step():  # many messages without a field take long, too
            yield None
        while at < end:
            tag, at = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            value: int | bytes
            if wire_type == VARINT:
                value, at = _varint(data, at)
            elif wire_type == BYTES:
                size, at = _varint(data, at)
                value = data[at : at + size]
                at += size
            elif wire_type in (FIXED64, FIXED32):
                size = 8 if wire_type == FIXED64 else 4
                value = int.from_bytes(data[at : at + size], "little")
                at += size
            else:
                raise DecodeError(f"metrics: wire type {wire_type}")
            if at > end or not number:
                raise DecodeError("metrics end in the middle of a field" if number else "metrics: field 0")
            yield Field(number, wire_type, value)
            if self._is_step():
                yield None

    def _is_step(self) -> bool:
        """Count one more; return whether a step is over. Raises TooManyError."""
        self._fields += 1
        if self._fields > FIELDS_MAX:
            raise TooManyError(f"metrics: more than {FIELDS_MAX} fields")
        return self._fields % FIELDS_PER_STEP == 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + count + 1
    raise DecodeError("metrics: a number without an end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _double(value: int) -> float:
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number
