"""Metrics as a client sends them by OTLP, made by hand: Protocol Buffers of OpenTelemetry's MetricsData."""

import struct


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number: int, value: float | int) -> bytes:
    packed = struct.pack("<d", value) if isinstance(value, float) else struct.pack("<q", value)
    return varint(number << 3 | 1) + packed


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)


def attribute(name: str, value: bytes) -> bytes:
    return field(1, name.encode()) + field(2, value)


def metrics(*found: bytes, resource: bytes = b"") -> bytes:
    scope = field(1, field(1, b"scope"))
    return field(1, field(1, field(1, resource)), field(2, scope, *(field(2, one) for one in found)))


TIMES = fixed(2, 3_000_000) + fixed(3, 5_000_000)
NAMED = field(1, b"a.b") + field(2, b"what it is") + field(3, b"ms")
GAUGE = metrics(NAMED + field(5, field(1, TIMES, fixed(4, 1.5))), resource=attribute("who", field(1, b"me")))
