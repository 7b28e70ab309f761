"""Checks every record of a batch without making objects, as a broker must for every batch that it accepts.

At a million records a second most time is spent here, so ``walk`` has three readers, the fastest first, and a fast
path for the single record of a producer that does not batch:

1. ``wire.walk_equal_length`` reads many records of equal length at a time (payloads of a fixed size).
2. ``wire.walk_short_varints`` reads records whose varints take one or two bytes: one ``struct`` call and two table
   look-ups for each record, and as much again for its headers.
3. ``wire.records.scan`` reads all others: long varints, offsets out of order, malformed records.

Every reader checks a record's length, timestamp delta, offset delta, key and value lengths and headers. The first two
accept nothing that the third refuses, and leave to it whatever they cannot read.
"""

from __future__ import annotations

from oncelog.wire.compression import Data
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import HEADERS_AT_ONCE, ManyHeaders, RecordLayout, scan, skip_headers_at
from oncelog.wire.steps import Steps, finish
from oncelog.wire.walk_equal_length import BIG_BLOCK, BLOCK, RUN_MIN, read_equal_length
from oncelog.wire.walk_short_varints import read_short_varints

_STEP_RECORDS = 512
"""Records that one step reads by short varints. What takes longer, or less, counts for more or fewer of them."""
_SCAN_COST = 16
"""Such records in whose time `scan` reads one."""
_RUN_COST = 8
"""Such records in whose time a run of equal length is tried, and read."""
_HEADERS_COST = 2
"""Such records in whose time the headers of one are read, if it has a few."""
_HEADERS_PER_COST = 4
"""Headers that are read in the time of one such record."""
_STEP_HEADERS = 256
"""Headers of one record that one step reads."""

_USUAL_SIZE_MIN = 7  # a byte each for length, attributes, two deltas, two lengths and the header count
_FRONT = b"\0"  # put before the records: the last byte (the header count) of a record before the first
_FRONTS_MAX = 4096  # entries of `_fronts`
_COPIED_BYTES_MAX = 64 * 1024  # up to this size, copying the records to put _FRONT before them is nearly free


_fronts: dict[int, bytes] = {}
"""Size of a record -> its bytes before the value, for one without key, headers and timestamp delta."""


class WalkResult:
    """Findings of `walk` in records that are well formed and as many as declared."""

    __slots__ = ("has_null_key", "max_delta", "min_delta", "sequential")

    def __init__(self) -> None:
        self.max_delta: int | None = None
        """The greatest timestamp delta (ms); None where there are no records."""
        self.min_delta = 0
        """The least timestamp delta (ms), or 0 where none is less."""
        self.has_null_key = False
        self.sequential = True
        """Whether the offset deltas are 0, 1, 2, …"""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WalkResult):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"WalkResult({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"

    def note_timestamp_delta(self, delta: int) -> None:
        """Extend the range of timestamp deltas by one (ms)."""
        if self.max_delta is None or delta > self.max_delta:
            self.max_delta = delta
        if delta < self.min_delta:
            self.min_delta = delta


def walk(records: Data, count: int, *, fast_readers: bool = True) -> WalkResult:
    """Check at once that ``records`` are exactly ``count`` well-formed records. Raises as `walk_in_steps`."""
    if count == 1 and fast_readers:
        result = WalkResult()
        if _is_usual_record(records, result):
            return result
    return finish(walk_in_steps(records, count, fast_readers=fast_readers))


def walk_in_steps(records: Data, count: int, *, fast_readers: bool = True) -> Steps[WalkResult]:
    """Check that ``records`` (decompressed) are exactly ``count`` well-formed records; without ``fast_readers`` by
    `scan` alone.

    Raises DecodeError, with the record's index, where they are not. Offset deltas out of order are no error
    here, as in ``DefaultRecord``.
    """
    result = WalkResult()
    position = 0
    data: bytes | bytearray
    if len(records) <= _COPIED_BYTES_MAX:
        data = b"".join((_FRONT, records))
        position = 1
    else:  # without _FRONT only `scan` can read the first record
        data = bytes(records) if isinstance(records, memoryview) else records
    limit = len(data)
    index = 0
    no_run_before = 0 if fast_readers else count
    read_short = read_short_varints if fast_readers else _read_none
    headers = False  # whether the last record that `scan` read had some, and not very many
    pause = BLOCK  # records until the next try for a run; doubled after each failure
    left = _STEP_RECORDS
    while index < count:
        if left <= 0:
            yield
            left = _STEP_RECORDS
        if index >= no_run_before and count - index >= RUN_MIN:
            run = read_equal_length(data, position, limit, index, count, result)
            left -= _RUN_COST
            if run:
                index, position = index + run[0], run[1]
                pause = BLOCK
                continue
            no_run_before = (index | (BLOCK - 1)) + 1 + pause - BLOCK
            pause = min(2 * pause, BIG_BLOCK)
        done, position = read_short(data, position, limit, index, count, headers, result)
        index += done
        left -= done
        if headers:
            left -= _HEADERS_COST * done
        if not done:
            position, header_count = yield from _scan_one(data, position, limit, index, result)
            headers = 0 < header_count <= HEADERS_AT_ONCE
            index += 1
            left -= _SCAN_COST + header_count // _HEADERS_PER_COST
    if position != limit:
        raise DecodeError(f"{limit - position} bytes after the {count} records of a batch")
    return result


def _is_usual_record(records: Data, result: WalkResult) -> bool:
    """Whether ``records`` are one well-formed record without headers, with short varints."""
    size = len(records)
    if size < _USUAL_SIZE_MIN or records[size - 1]:  # the header count
        return False
    front = _fronts.get(size)
    if front is not None and records[: len(front)] == front:
        result.max_delta = 0
        result.has_null_key = True
        return True
    length = records[0]
    if length < 128:
        at = 1
    elif records[1] < 128:
        at = 2
        length += (records[1] << 7) - 128
    else:
        return False
    if length != 2 * (size - at) or records[at + 1] & 129 or records[at + 2]:  # timestamp and offset delta
        return False
    key_length = records[at + 3]
    value_length_at = at + 4
    if key_length != 1:
        if key_length & 1:
            return False
        if key_length >= 128:  # a third byte would make it greater than any key that fits a length of two
            key_length += (records[value_length_at] << 7) - 128
            value_length_at += 1
        value_length_at += key_length >> 1
    if value_length_at + 1 >= size:
        return False
    value_length = records[value_length_at]
    value_at = value_length_at + 1
    if value_length < 128:
        if value_length & 1 or value_length != 2 * (size - 1 - value_at):
            return False
    else:
        value_length += (records[value_at] << 7) - 128
        value_at += 1
        if value_length != 2 * (size - 1 - value_at):
            return False  # a third byte makes it greater than any value that fits a length of two
    result.max_delta = records[at + 1] >> 1
    result.has_null_key = key_length == 1
    if key_length == 1 and not result.max_delta:
        if len(_fronts) >= _FRONTS_MAX:
            _fronts.clear()
        _fronts[size] = bytes(records[:value_at])
    return True


def _read_none(
    data: bytes | bytearray,
    position: int,
    limit: int,
    index: int,
    count: int,
    headers: bool,
    result: WalkResult,
) -> tuple[int, int]:
    """In place of `read_short_varints`: leave all records to `scan`."""
    return 0, position


def _scan_one(
    data: bytes | bytearray, position: int, limit: int, index: int, result: WalkResult
) -> Steps[tuple[int, int]]:
    """Read one record with `scan`. Returns the position after it, and the number of its headers."""
    try:
        try:
            layout = scan(data, position, limit, HEADERS_AT_ONCE)
        except ManyHeaders as many:
            layout = many.layout
            yield from _skip_many_headers(data, layout)
    except DecodeError as error:
        raise DecodeError(f"record {index}: {error}") from None
    end, timestamp_delta, offset_delta, _, key_end, _, _, header_count, _ = layout
    result.note_timestamp_delta(timestamp_delta)
    if key_end < 0:
        result.has_null_key = True
    if offset_delta != index:
        result.sequential = False
    return end, header_count


def _skip_many_headers(data: bytes | bytearray, layout: RecordLayout) -> Steps[None]:
    """Check the headers of a record that `scan` has left. Raises DecodeError as `scan` does."""
    end, *_, count, at = layout
    try:
        for start in range(0, count, _STEP_HEADERS):
            if start:
                yield
            at = skip_headers_at(data, at, min(_STEP_HEADERS, count - start))
    except IndexError:
        raise DecodeError("record is cut short") from None
    if at != end:
        raise DecodeError(f"record whose headers end {at - end} bytes after it")
