"""Reads metrics in the format of OpenTelemetry (``MetricsData`` of OTLP 1, in Protocol Buffers).

Only what clients of Kafka send is read: gauges, sums and histograms. Unknown fields are skipped.
Source: ``opentelemetry/proto/metrics/v1/metrics.proto``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of Protocol Buffers."""
VARINT_BYTES_MAX = 10
NANOS_PER_MS = 1_000_000

Value = int | float | str | bool
Field = tuple[int, int, "int | bytes"]
"""Number, wire type, and value: a number of 64 bits, or bytes."""


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


def check_metrics(data: bytes) -> None:
    """Raise DecodeError unless ``data`` can be read."""
    for _ in read_metrics(data):
        pass


def read_metrics(data: bytes) -> Iterator[Point]:
    """Yield the values of all metrics. Raises DecodeError."""
    try:
        for number, resource_metrics in _messages(data):
            if number == 1:
                yield from _resource_metrics(resource_metrics)
    except UnicodeDecodeError as error:
        raise DecodeError(f"metrics: {error}") from None


def _resource_metrics(data: bytes) -> Iterator[Point]:
    parts = list(_messages(data))
    resource: dict[str, Value] = {}
    for number, part in parts:
        if number == 1:
            resource.update(_attribute(one) for field, one in _messages(part) if field == 1)
    for number, scope in parts:
        if number == 2:
            for field, metric in _messages(scope):
                if field == 2:
                    yield from _metric(metric, resource)


_KINDS = {5: "gauge", 7: "sum", 9: "histogram"}
DELTA = 1
"""``AGGREGATION_TEMPORALITY_DELTA``."""


def _metric(data: bytes, resource: dict[str, Value]) -> Iterator[Point]:
    texts = {1: "", 2: "", 3: ""}
    bodies: list[tuple[str, bytes]] = []
    for number, wire_type, value in _fields(data):
        if wire_type == BYTES and isinstance(value, bytes):
            if number in texts:
                texts[number] = value.decode()
            elif number in _KINDS:
                bodies.append((_KINDS[number], value))
    for kind, body in bodies:
        fields = list(_fields(body))
        is_delta = any(number == 2 and value == DELTA for number, _, value in fields)
        for number, _, point in fields:
            if number == 1 and isinstance(point, bytes):
                yield _point(point, texts, kind, is_delta, resource)


def _point(
    data: bytes, texts: dict[int, str], kind: str, is_delta: bool, resource: dict[str, Value]
) -> Point:
    times = {2: 0, 3: 0}
    value: float | int = 0
    values = None
    attributes: dict[str, Value] = {}
    is_histogram = kind == "histogram"
    for number, wire_type, found in _fields(data):
        if isinstance(found, bytes):
            if number == (9 if is_histogram else 7):
                name, attribute = _attribute(found)
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


def _attribute(data: bytes) -> tuple[str, Value]:
    """Return key and value of a ``KeyValue``; lists and tables are shown as their bytes in hexadecimal."""
    key, value = "", b""
    for number, part in _messages(data):
        if number == 1:
            key = part.decode()
        elif number == 2:
            value = part
    for number, _, found in _fields(value):
        if number == 1 and isinstance(found, bytes):
            return key, found.decode()
        if isinstance(found, bytes):
            return key, found.hex()
        if number == 2:
            return key, bool(found)
        if number == 3:
            return key, _signed(found)
        if number == 4:
            return key, _double(found)
    return key, ""


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields that are bytes: texts, and messages in messages."""
    for number, _, value in _fields(data):
        if isinstance(value, bytes):
            yield number, value


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message. Raises DecodeError."""
    at, end = 0, len(data)
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
        yield number, wire_type, value


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
