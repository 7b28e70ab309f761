"""Record batches with any field a test asks for, right or wrong; and a strict reader of fetched batches.

This code follows the description of message format v2 and shares nothing with the broker, so it does not repeat the
broker's mistakes.
"""

import gzip
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes
CRC_START = 21
CREATE_TIME, LOG_APPEND_TIME = 0, 8
TRANSACTIONAL, CONTROL = 16, 32
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
Headers = Sequence[tuple[str, bytes | None]]


WAIT_MS = 60_000
"""After so long a test gives up on what should come in a moment. A busy machine delays it by many seconds."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def varint(value: int) -> bytes:
    """A zig-zag varint, as in records."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(
    key: bytes | None = None,
    value: bytes | None = b"value",
    headers: Headers = (),
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    extra: bytes = b"",
) -> bytes:
    """One encoded record; `extra` bytes at its end make it invalid."""
    body = bytearray(b"\0" + varint(timestamp_delta) + varint(offset_delta))
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(len(headers))
    for name, content in headers:
        body += varint(len(name.encode())) + name.encode()
        body += varint(-1) if content is None else varint(len(content)) + content
    body += extra
    return varint(len(body)) + bytes(body)


def compress(codec: int, data: bytes) -> bytes:
    """`data` compressed with GZIP, SNAPPY (in Java's framing), LZ4 or ZSTD; unchanged with NONE."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        import cramjam

        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped,unused-ignore]

        return bytes(lz4.frame.compress(data))
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor().compress(data)
    return data


def decompress(codec: int, data: bytes) -> bytes:
    """`data` decompressed; Snappy may have either framing."""
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        import cramjam

        if not data.startswith(b"\x82SNAPPY\0"):
            return bytes(cramjam.snappy.decompress_raw(data))
        at, out = 16, b""
        while at < len(data):
            size = struct.unpack_from(">i", data, at)[0]
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    if codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped,unused-ignore]

        return bytes(lz4.frame.decompress(data))
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def batch(
    records: Iterable[bytes] | int = 1,
    *,
    codec: int = NONE,
    attributes: int = 0,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    count: int | None = None,
    last_offset_delta: int | None = None,
    length: int | None = None,
    trailing: bytes = b"",
) -> bytes:
    """One batch of encoded `records`, or of so many plain ones; `producer` is the id, epoch and base sequence.

    Arguments that are None get their correct value; other values are written as they are, right or wrong.
    """
    if isinstance(records, int):
        records = [record(b"k%d" % i, b"v%d" % i, offset_delta=i) for i in range(records)]
    encoded = list(records)
    count = len(encoded) if count is None else count
    base_timestamp = now_ms() if base_timestamp is None else base_timestamp
    payload = compress(codec, b"".join(encoded)) + trailing
    fields: list[Any] = [base_offset, len(payload) + 49 if length is None else length, leader_epoch, magic, 0]
    fields += [attributes | codec, len(encoded) - 1 if last_offset_delta is None else last_offset_delta]
    fields += [base_timestamp, base_timestamp if max_timestamp is None else max_timestamp, *producer, count]
    whole = bytearray(HEADER.pack(*fields) + payload)
    struct.pack_into(">I", whole, 17, crc32c.crc32c(bytes(whole[CRC_START:])) if crc is None else crc)
    return bytes(whole)


class Batch(NamedTuple):
    """A fetched batch: the fields of its header, and its encoded records, decompressed."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes

    @property
    def codec(self) -> int:
        return self.attributes & 7


def read_batches(data: bytes) -> Iterator[Batch]:
    """The complete batches in the records of a Fetch response. Asserts every CRC; ignores a truncated last batch."""
    at = 0
    while at + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, at)
        end = at + 12 + fields[1]
        if end > len(data):
            break
        assert crc32c.crc32c(data[at + CRC_START : end]) == fields[4], (
            f"CRC of the batch at offset {fields[0]}"
        )
        yield Batch._make((*fields, decompress(fields[5] & 7, data[at + HEADER.size : end])))
        at = end


def read_values(one: Batch) -> Iterator[bytes | None]:
    """The values of the records in a batch."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = one.payload[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    for _ in range(one.record_count):
        record_size = number()
        end = at + record_size
        at += 1  # attributes
        number(), number()  # the deltas of timestamp and offset
        key_size = number()
        at += max(key_size, 0)
        size = number()
        yield None if size < 0 else one.payload[at : at + size]
        at = end
