"""Valid and invalid batches of producers, with the error and the invalid records that Kafka 4.3.1 returns.

test_validate.py runs them with our validator, test_validate_kafka.py with Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import LZ4, NONE, ZSTD
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import ErrorCode
from oncelog.wire.validation_rules import ValidationRules
from tests.wire.batches import CODEC_NAMES, CODECS, Row, encode_kafka_python

NOW = 1_800_000_000_000
HOUR = 3_600_000

OK = ErrorCode.NONE
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class Case:
    """``error``; ``at_fault``: indexes of the invalid records; ``version``: of Produce."""

    def __init__(
        self,
        name: str,
        records: bytes | bytearray,
        error: ErrorCode = OK,
        at_fault: tuple[int, ...] = (),
        version: int = 9,
        **rules: Any,
    ) -> None:
        self.name = name
        self.records = bytes(records)
        self.error = error
        self.at_fault = list(at_fault)
        self.version = version
        self.rules = ValidationRules(zstd_allowed=version >= 7, **rules)

    def __repr__(self) -> str:
        return self.name


def rows(
    *timestamps: int, keys: tuple[bytes | None, ...] = (b"a", b"b", b"c"), value: bytes = b"value" * 40
) -> list[Row]:
    return [(time, key, value, []) for time, key in zip(timestamps, keys, strict=False)]


ROWS = rows(NOW - 5, NOW - 3, NOW - 4)


def changed(batch: bytes | bytearray, at: int, form: str, value: int) -> bytearray:
    """The batch with one field overwritten and a correct CRC."""
    out = bytearray(batch)
    struct.pack_into(form, out, at, value)
    return sealed(out)


def sealed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def with_payload(batch: bytes | bytearray, payload: bytes) -> bytearray:
    return changed(bytes(batch[:61]) + payload, 8, ">i", 49 + len(payload))


BASE_OFFSET, LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, BASE_TIME, MAX_TIME, COUNT = 0, 8, 16, 21, 23, 27, 35, 57


def headers(codec: int, name: str) -> Iterator[Case]:
    good = encode_kafka_python(ROWS, codec)
    yield Case(f"{name}: good", good)
    yield Case(f"{name}: base offset", changed(good, BASE_OFFSET, ">q", 7), INVALID)
    yield Case(f"{name}: just small enough", good, max_message_bytes=len(good))
    yield Case(f"{name}: too large", good, TOO_LARGE, max_message_bytes=len(good) - 1)
    for at in (17, 24, 60, len(good) - 1):
        broken = bytearray(good)
        broken[at] ^= 1
        yield Case(f"{name}: CRC, byte {at}", broken, CORRUPT)
    for count in (-1, 0, 2, 4, 100_000):
        other_count = changed(good, COUNT, ">i", count)
        yield Case(f"{name}: count {count}", other_count, INVALID)
        yield Case(f"{name}: {count} in both", changed(other_count, LAST_DELTA, ">i", count - 1), INVALID)
        yield Case(f"{name}: last delta {count - 1}", changed(good, LAST_DELTA, ">i", count - 1), INVALID)
    yield Case(f"{name}: control batch", changed(good, ATTRIBUTES, ">h", 0x20 | codec), INVALID)
    yield Case(f"{name}: attributes of no meaning", changed(good, ATTRIBUTES, ">h", 0x4080 | codec))
    for unknown in (5, 6, 7):
        yield Case(f"{name}: codec {unknown}", changed(good, ATTRIBUTES, ">h", unknown), UNKNOWN)
    producer = {"producer_id": 5, "producer_epoch": 0}
    with_sequence = encode_kafka_python(ROWS, codec, base_sequence=2**31 - 2, is_transactional=1, **producer)
    yield Case(f"{name}: sequence that wraps", with_sequence)
    without = encode_kafka_python(ROWS, codec, base_sequence=-1, **producer)
    yield Case(f"{name}: producer without a sequence", without, INVALID)
    internal: dict[str, Any] = {"from_client": False}
    yield Case(
        f"{name}: the broker's own", good if codec else changed(good, BASE_OFFSET, ">q", 7), **internal
    )
    marker = encode_kafka_python(rows(NOW, keys=(bytes.fromhex("0000 0001"),)), codec)
    marker = changed(marker, ATTRIBUTES, ">h", 0x30 | codec)
    yield Case(f"{name}: control batch of its own", marker, **internal)


def framing(codec: int, name: str) -> Iterator[Case]:
    good = bytes(encode_kafka_python(ROWS, codec))
    for size in (0, 5, 11, 12, 16, 17, 30, 60, 61, len(good) - 1):
        yield Case(f"{name}: {size} bytes of it", good[:size], INVALID)
    for length in (-(2**31), -1, 0, 13):
        yield Case(f"{name}: length {length}", changed(good, LENGTH, ">i", length), CORRUPT)
    for length in (15, 20, 48, 49):
        shorter = struct.pack(">i", length)
        yield Case(f"{name}: length {length}", good[:LENGTH] + shorter + good[12 : 12 + length], CORRUPT)
    yield Case(f"{name}: length 10,000", changed(good, LENGTH, ">i", 10_000), INVALID)
    for magic, error in ((0, INVALID), (1, INVALID), (3, CORRUPT), (-1, CORRUPT)):
        yield Case(f"{name}: magic {magic}", changed(good, MAGIC, ">b", magic), error)
    yield Case(f"{name}: two batches", good + good, INVALID)
    yield Case(f"{name}: a half after it", good + good[:40])
    yield Case(f"{name}: a few bytes after it", good + b"abc")
    yield Case(f"{name}: zeros after it", good + bytes(30), CORRUPT)
    bad_magic = bytes(8) + struct.pack(">iib", 32, 0, 7) + bytes(30)
    yield Case(f"{name}: magic 7 after it", good + bad_magic, CORRUPT)
    yield Case(f"{name}: Produce 5", good, UNSUPPORTED if codec == ZSTD else OK, version=5)


def contents(codec: int, name: str) -> Iterator[Case]:
    def encode(rows: list[Row]) -> bytearray:
        return encode_kafka_python(rows, codec)

    keys = (None, b"b", None)
    no_keys = encode(rows(NOW, NOW, NOW, keys=keys))
    yield Case(f"{name}: null keys", no_keys)
    yield Case(f"{name}: null keys, compacted", no_keys, INVALID, (0, 2), compacted=True)
    yield Case(f"{name}: keys, compacted", encode(ROWS), compacted=True)
    early = encode(rows(NOW - 1000, NOW - 1001, NOW - 1002))
    limit: dict[str, Any] = {"timestamp_before_max_ms": 1000}
    yield Case(f"{name}: too early", early, TIMESTAMP, (1, 2), **limit)
    yield Case(f"{name}: early and LogAppendTime", early, log_append_time=True, **limit)
    late = encode(rows(NOW + HOUR, NOW + HOUR + 1, NOW))
    yield Case(f"{name}: too late", late, TIMESTAMP, (1,))
    yield Case(f"{name}: late and LogAppendTime", late, log_append_time=True)
    both = encode(rows(NOW, NOW + HOUR + 1, NOW, keys=keys))
    yield Case(f"{name}: too late and null keys", both, TIMESTAMP, (0, 1, 2), compacted=True)
    yield Case(f"{name}: no timestamps", encode(rows(-1, -1, -1)), **limit)
    yield Case(f"{name}: one without", encode(rows(NOW, -1, NOW)), **limit)
    yield Case(f"{name}: before 1970", encode(rows(-5, -7, -6)))
    yield Case(
        f"{name}: at the end of time", changed(encode(ROWS), BASE_TIME, ">q", 2**63 - 2), TIMESTAMP, (0, 1, 2)
    )
    yield Case(
        f"{name}: before its beginning",
        changed(encode(rows(NOW, NOW - 1)), BASE_TIME, ">q", -(2**63)),
        TIMESTAMP,
        (0, 1),
    )
    # Java's long overflows: the farthest timestamp is not far at all.
    for_ever: dict[str, Any] = {"timestamp_after_max_ms": 2**63 - 1}
    yield Case(
        f"{name}: before its beginning, allowed", changed(encode(ROWS), BASE_TIME, ">q", -(2**63)), **for_ever
    )
    yield Case(f"{name}: half of time ago", changed(encode(rows(NOW)), BASE_TIME, ">q", NOW - 2**63))
    yield Case(f"{name}: over the end of time", changed(encode(ROWS), BASE_TIME, ">q", 2**63 - 2), **for_ever)
    yield Case(
        f"{name}: too late, no keys", encode(rows(NOW, NOW + 2 * HOUR, keys=(None, None))), TIMESTAMP, (1,)
    )
    for time in (NOW - 4, NOW + 9, -1, 0):
        yield Case(f"{name}: max timestamp {time}", changed(encode(ROWS), MAX_TIME, ">q", time))
    set_by_client = changed(encode(ROWS), ATTRIBUTES, ">h", 0x08 | codec)
    yield Case(f"{name}: LogAppendTime by client", set_by_client)
    yield Case(f"{name}: it by both", set_by_client, TIMESTAMP, (0, 1, 2), log_append_time=True)
    without_time = changed(set_by_client, MAX_TIME, ">q", -1)
    yield Case(f"{name}: LogAppendTime -1", without_time, TIMESTAMP, (0, 1, 2))
    yield Case(
        f"{name}: late LogAppendTime",
        changed(set_by_client, MAX_TIME, ">q", NOW + HOUR + 1),
        TIMESTAMP,
        (0, 1, 2),
    )
    for target in CODECS:
        to = f"{name} to {CODEC_NAMES[target]}"
        yield Case(to, encode(ROWS), codec=target)
        yield Case(f"{to}, LogAppendTime", encode(ROWS), codec=target, log_append_time=True)
        yield Case(f"{to}, wrong max timestamp", changed(encode(ROWS), MAX_TIME, ">q", 5), codec=target)
        yield Case(f"{to}, LogAppendTime by client", set_by_client, codec=target)
        gaps = with_gaps(codec)
        in_place = target == codec != NONE
        yield Case(f"{to}, offset deltas with gaps", gaps, UNKNOWN if in_place else OK, codec=target)
    if codec:
        yield Case(f"{name}: not that codec", with_payload(encode(ROWS), b"\x01not a stream at all"), UNKNOWN)
        cut = encode(rows(NOW, NOW, NOW, value=bytes(range(256)) * 3))
        yield Case(f"{name}: stream cut short", with_payload(cut, bytes(cut[61:-20])), UNKNOWN)
    else:
        yield Case(
            "none: a byte after the records",
            with_payload(encode(ROWS), bytes(encode(ROWS)[61:]) + b"\0"),
            INVALID,
        )
        yield Case("none: records cut short", with_payload(encode(ROWS), bytes(encode(ROWS)[61:-1])), INVALID)
        empty = with_payload(encode(ROWS), b"")
        yield Case("none: no records", empty, INVALID)
        yield Case(
            "none: no records, and none declared",
            changed(changed(empty, COUNT, ">i", 0), LAST_DELTA, ">i", -1),
            INVALID,
        )


def with_gaps(codec: int) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for offset in (0, 2, 5):
        builder.append(NOW, b"k", b"v", offset=offset)
    return changed(builder.build(), LAST_DELTA, ">i", 2)


def all_cases() -> list[Case]:
    cases: list[Case] = []
    for codec, name in zip(CODECS, CODEC_NAMES, strict=True):
        for kind in (headers, framing, contents):
            cases += kind(codec, name)
    larger = encode_kafka_python(rows(NOW, NOW, NOW, value=bytes(5000)), LZ4)
    cases.append(
        Case("too large once it is not compressed", larger, TOO_LARGE, codec=NONE, max_message_bytes=9000)
    )
    return cases
