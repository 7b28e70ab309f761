"""Batches of at most a megabyte that take a broker very long, each valid or nearly so: what an attacker would send."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.common.batches import GZIP, NONE, SNAPPY, ZSTD, batch, compress, record, varint

EMPTY = b"\x0c\0\0\0\1\1\0"
"""A record without key, value and headers, with both deltas 0."""


class LargeBatch(NamedTuple):
    payload: bytes
    """The records, as they stand in the batch."""
    records: int
    codec: int
    is_valid: bool = True
    """Whether a topic that keeps the producer's codec takes it."""

    def batch(self, attributes: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
        """The whole batch, with further ``attributes``; ``producer`` is the id, epoch and base sequence."""
        return batch(
            [self.payload],
            attributes=attributes | self.codec,
            producer=producer,
            count=self.records,
            last_offset_delta=self.records - 1,
        )


def empty_records(count: int) -> LargeBatch:
    """Records that all have the offset delta 0, which only a recompression (of uncompressed ones) accepts."""
    return LargeBatch(compress(ZSTD, EMPTY * count), count, ZSTD, False)


def numbered_records(count: int) -> LargeBatch:
    """The smallest valid records, with the offset deltas 0, 1, 2, …"""
    payload = b"".join(record(None, None, offset_delta=at) for at in range(count))
    return LargeBatch(compress(ZSTD, payload), count, ZSTD)


def one_large_record(size: int) -> LargeBatch:
    """One record of so many zeros."""
    return LargeBatch(compress(ZSTD, record(None, bytes(size))), 1, ZSTD)


def empty_zstd_frames(count: int) -> LargeBatch:
    frame = compress(ZSTD, b"")
    return LargeBatch(frame * count + compress(ZSTD, record()), 1, ZSTD)


def run_length_blocks(blocks: int) -> LargeBatch:
    """A zstd frame of very many blocks, each of which has one byte (RFC 8878, 3.1.1.2)."""
    value = bytes(blocks)
    front = record(None, value)[: -len(value) - 1]
    raw = struct.pack("<I", len(front) << 3)[:3] + front
    zero = struct.pack("<I", 1 << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + b"\0"
    frame = b"\x28\xb5\x2f\xfd" + b"\x00\x50" + raw + zero * blocks + last
    return LargeBatch(frame, 1, ZSTD)


def gzip_members(count: int) -> LargeBatch:
    """Java reads each empty member with one more call on its stack, which overflows."""
    member = gzip.compress(b"", mtime=0)
    return LargeBatch(member * count + gzip.compress(record(), mtime=0), 1, GZIP, False)


def snappy_blocks(count: int) -> LargeBatch:
    payload = record()
    block = bytes((len(payload), (len(payload) - 1) << 2)) + payload
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    empty = struct.pack(">i", 1) + b"\0"
    return LargeBatch(head + empty * count + struct.pack(">i", len(block)) + block, 1, SNAPPY)


def headers(count: int, codec: int) -> LargeBatch:
    """One record with very many empty headers."""
    body = b"\0\0\0\1\1" + varint(count) + b"\0\1" * count
    payload = varint(len(body)) + body
    return LargeBatch(compress(codec, payload), 1, codec)


def long_varints(size: int) -> LargeBatch:
    """Records whose varints take more bytes than they need, which only the slowest of readers knows."""
    out = bytearray()
    count = 0
    while len(out) < size:
        value = (count << 1).to_bytes(3, "little")
        number = value[0] | value[1] << 8 | value[2] << 16
        delta = bytes((number >> shift & 127) | (128 if shift < 28 else 0) for shift in range(0, 35, 7))
        body = b"\0\x80\x80\x80\x80\0" + delta + b"\1\1\0"
        out += varint(len(body)) + body
        count += 1
    return LargeBatch(bytes(out), count, NONE)


LARGE_BATCHES: dict[str, Callable[[int], LargeBatch]] = {
    "a million empty records": lambda part: empty_records(1_000_000 // part),
    "200,000 numbered records": lambda part: numbered_records(200_000 // part),
    "one record of 60 MB": lambda part: one_large_record(60_000_000 // part),
    "100,000 empty zstd frames": lambda part: empty_zstd_frames(100_000 // part),
    "240,000 run-length blocks": lambda part: run_length_blocks(240_000 // part),
    "45,000 gzip members": lambda part: gzip_members(45_000 // part),
    "190,000 snappy blocks": lambda part: snappy_blocks(190_000 // part),
    "450,000 headers": lambda part: headers(450_000 // part, NONE),
    "20 million headers, compressed": lambda part: headers(20_000_000 // part, ZSTD),
    "60,000 records of long varints": lambda part: long_varints(1_000_000 // part),
}
"""Each by its name, in full or a fraction of it: ``LARGE_BATCHES[name](10)`` has a tenth of the records."""
