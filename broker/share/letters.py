"""The records of a dead-letter queue as bytes, and the originals that they copy. Source: ``ShareGroupDLQStateManager``.

An encoded record is what follows the offset delta: key, value and headers.
"""

from __future__ import annotations

from typing import TypeAlias

from oncelog.wire.batch import CONTROL_BIT, HEADER_SIZE, read_header
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import records_of_in_steps, scan
from oncelog.wire.steps import Steps
from oncelog.wire.varint import varint

Originals: TypeAlias = dict[int, tuple[bytes | None, bytes | None]]
"""Offset -> key and value."""

REJECTED = b"Offset rejected by client."
TOO_MANY_DELIVERIES = b"Offset delivery count exceeded the threshold."
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""Decompressed bytes of the largest batch whose records are copied, unless the queue's ``max.message.bytes`` is less.
Dead letters of a larger one have headers only."""
RECORDS_PER_STEP = 256
RECORD_OVERHEAD_MAX = 12
"""Bytes of a record before its key, at most: length, attributes, and the deltas of timestamp and offset."""
_FIRST_OVERHEAD = 3
"""The same without the length, of the first record of a batch."""
_OFFSET = b"__dlq.errors.offset"


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


class LetterTemplate:
    """Encoded records that differ only in their offset, key and value."""

    __slots__ = ("_after", "_before")

    def __init__(
        self, topic: str, partition: int, group_id: str, delivery_count: int, *, is_rejected: bool
    ) -> None:
        headers = [
            _field(b"__dlq.errors." + name) + _field(value)
            for name, value in (
                (b"topic", topic.encode()),
                (b"partition", b"%d" % partition),
                (b"group", group_id.encode()),
                (b"delivery.count", b"%d" % delivery_count),
                (b"message", REJECTED if is_rejected else TOO_MANY_DELIVERIES),
            )
        ]
        self._before = varint(len(headers) + 1) + b"".join(headers[:2]) + _field(_OFFSET)
        self._after = b"".join(headers[2:])

    def letter(self, offset: int, key: bytes | None = None, value: bytes | None = None) -> bytes:
        """Return the encoded record for an offset."""
        return _field(key) + _field(value) + self._before + _field(b"%d" % offset) + self._after

    def letters(self, first: int, end: int) -> list[bytes]:
        """Return the encoded records without key and value, for offsets from ``first`` on and before ``end``, as far as
        they have as many digits as ``first``.
        """
        digits = len(str(first))
        before, after = _field(None) * 2 + self._before + varint(digits), self._after
        return [before + b"%d" % offset + after for offset in range(first, min(end, 10**digits))]


def batch_size(record: bytes) -> int:
    """Return the bytes of a batch of one encoded record."""
    size = _FIRST_OVERHEAD + len(record)
    return HEADER_SIZE + len(varint(size)) + size


def originals_in(data: bytes, first: int, last: int, limit: int) -> Steps[tuple[Originals, int]]:
    """Return the records with offsets from ``first`` to ``last`` in batches of the log, and the offset after them.
    Records of a batch that cannot be read, or that decompresses to more than ``limit`` bytes, are left out
    (``decompressBounded``).
    """
    found: Originals = {}
    position, end = 0, last + 1
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data) or header.base_offset > last:
            break
        end = header.next_offset
        if not header.attributes & CONTROL_BIT and end > first:
            try:
                size = min(limit, DECOMPRESSED_BYTES_MAX) if header.codec else header.size
                records = yield from records_of_in_steps(data, header, size, position)
                at = 0
                for number in range(header.record_count):
                    at, _, delta, key_at, key_end, value_at, value_end, _, _ = scan(records, at, len(records))
                    offset = header.base_offset + delta
                    if first <= offset <= last:
                        found[offset] = (
                            bytes(records[key_at:key_end]) if key_end >= 0 else None,
                            bytes(records[value_at:value_end]) if value_end >= 0 else None,
                        )
                    if number % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
                        yield
            except DecodeError:
                pass
        position += header.size
    return found, end
