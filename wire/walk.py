"""Walking the records of a batch without building objects: what a broker does with every batch it accepts.

At a million records a second this is where the time goes, so ``walk`` has three gears (and a short way for the
single record that a producer without batching sends):

1. Runs of records of one length (what payloads of a fixed size give). The bytes that describe the records
   stand a fixed distance apart, so each such column is taken with one strided slice and compared as a whole.
2. Records whose fields have the usual sizes: one ``struct`` call and two table look-ups a record.
3. Everything else (headers, long varints, offsets out of order, and whatever is malformed):
   ``wire.records.scan``.

The others accept nothing that the third refuses, and what they do not know they leave to it. All of them
check every record's length, timestamp delta, offset delta, key and value lengths and header count.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812

from wire.errors import DecodeError
from wire.records import scan
from wire.varint import read_varint, read_varlong

_USUAL_SIZE_MIN = 7  # a byte each for length, attributes, two deltas, two lengths and the header count
_FRONT = b"\0"  # before the records: stands for the header count of a record before the first
_BACK = bytes(16)  # behind them, so that reading a few bytes ahead stays inside
_RUN_MIN = 24  # records in a run worth its set-up

_EVERY_BYTE = bytes(range(256))
_LOW_BYTES = _EVERY_BYTE[:128]
_HIGH_BYTES = _EVERY_BYTE[128:]
_ODD_BYTES = _EVERY_BYTE[1::2]

# The offset delta n as a varint is 2n: one byte below 64, two below 8192, three below 2**20.
_BLOCK = 64  # records whose offset deltas differ in their first byte only
_BIG_BLOCK = 8192  # … in their first two only
_DELTA_MAX = 1 << 20
_ONE_BYTE_DELTAS = bytes(range(0, 128, 2))
_FIRST_BYTES = bytes(range(128, 256, 2)) * (_BIG_BLOCK // _BLOCK)
_SECOND_BYTES = b"".join(bytes((high,)) * _BLOCK for high in range(128))
_SECOND_OF_THREE = b"".join(bytes((high | 128,)) * _BLOCK for high in range(128))

_BAD = -(1 << 20)  # in a table of sizes: not a size, whatever is added to it


class Walk:
    """What a walk found out about records that are well formed, and as many as declared."""

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
        if not isinstance(other, Walk):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Walk({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"

    def _see(self, delta: int) -> None:
        if self.max_delta is None or delta > self.max_delta:
            self.max_delta = delta
        if delta < self.min_delta:
            self.min_delta = delta


def walk(records: bytes | memoryview, count: int) -> Walk:
    """Check that ``records`` (decompressed) are ``count`` well-formed records and nothing more.

    Raises DecodeError, with the record's index, where they are not. Offset deltas out of order are no error
    here, as they are none in ``DefaultRecord``.
    """
    found = Walk()
    if count == 1 and _is_usual_record(records, found):
        return found
    data = b"".join((_FRONT, records, _BACK))
    limit = len(data) - len(_BACK)
    position = 1
    index = 0
    no_run_before = 0
    while index < count:
        if index >= no_run_before and count - index >= _RUN_MIN:
            length = _run(data, position, limit, index, count, found)
            if length:
                index, position = index + length[0], length[1]
                continue
            no_run_before = (index | (_BLOCK - 1)) + 1
        done, position = _stretch(data, position, limit, index, count, found)
        index += done
        if not done:
            position = _slow_step(data, position, limit, index, found)
            index += 1
    if position != limit:
        raise DecodeError(f"{limit - position} bytes after the {count} records of a batch")
    return found


def _is_usual_record(records: bytes | memoryview, found: Walk) -> bool:
    """Whether ``records`` are one record without headers, all of whose fields are as short as is usual."""
    size = len(records)
    if size < _USUAL_SIZE_MIN or records[size - 1]:  # the header count
        return False
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
        if key_length & 129:
            return False
        value_length_at += key_length >> 1
    if value_length_at + 1 >= size:
        return False
    value_length = records[value_length_at]
    if value_length < 128:
        if value_length & 1 or value_length != 2 * (size - 2 - value_length_at):
            return False
    elif value_length + (records[value_length_at + 1] << 7) - 128 != 2 * (size - 3 - value_length_at):
        return False  # a third byte makes it greater than any value that fits a length of two
    found.max_delta = records[at + 1] >> 1
    found.has_null_key = key_length == 1
    return True


def _slow_step(data: bytes, position: int, limit: int, index: int, found: Walk) -> int:
    try:
        end, timestamp_delta, offset_delta, _, key_end, _, _, _, _ = scan(data, position, limit)
    except DecodeError as error:
        raise DecodeError(f"record {index}: {error}") from None
    found._see(timestamp_delta)
    if key_end < 0:
        found.has_null_key = True
    if offset_delta != index:
        found.sequential = False
    return end


def _run(
    data: bytes, position: int, limit: int, index: int, count: int, found: Walk
) -> tuple[int, int] | None:
    """Gear 1: as many records as stand in a run from ``position``, and the position after them; None for too few.

    A run: records of one length whose fields have the same sizes too, so that all but the timestamp delta's
    and offset delta's lowest bits (and keys and values) are the same in each.
    """
    if index >= _DELTA_MAX:
        return None
    try:
        length, at = read_varint(data, position)
        stride = at - position + length
        if length < 1 or position + _RUN_MIN * stride > limit:
            return None
        if data[position + stride] != data[position] or data[position + 2 * stride] != data[position]:
            return None
        timestamp_at = at + 1
        timestamp_delta, delta_at = read_varlong(data, timestamp_at)
        key_length_at = delta_at + (1 if index < _BLOCK else 2 if index < _BIG_BLOCK else 3)
        key_length = data[key_length_at]
        if key_length & 129 and key_length != 1:
            return None
        value_length_at = key_length_at + 1 + (key_length >> 1)
        value_length, value_at = read_varint(data, value_length_at)
    except (DecodeError, IndexError):
        return None
    header_count_at = value_at + max(value_length, 0)
    if header_count_at + 1 != position + stride or data[header_count_at] or delta_at - timestamp_at > 5:
        return None

    block_end = _BLOCK if index < _BLOCK else (index | (_BIG_BLOCK - 1)) + 1
    size = min(count, block_end) - index
    size = min(size, (limit - position) // stride)
    same = (*range(position, at), *range(timestamp_at + 1, delta_at), key_length_at)
    for column_at in (*same, *range(value_length_at, value_at), header_count_at):
        column = data[column_at : position + size * stride : stride]
        if column != column[:1] * size:
            size -= len(column.lstrip(column[:1]))
            if size < _RUN_MIN:
                return None
    end = position + size * stride
    times = data[timestamp_at:end:stride]
    if times.translate(None, _LOW_BYTES if delta_at == timestamp_at + 1 else _HIGH_BYTES):
        return None
    if not _deltas_follow(data[delta_at:end:stride], data[delta_at + 1 : end : stride], index):
        return None
    if index >= _BIG_BLOCK and data[delta_at + 2 : end : stride] != bytes((index // _BIG_BLOCK,)) * size:
        return None
    if key_length == 1:
        found.has_null_key = True
    _see_times(times, ((timestamp_delta << 1) ^ (timestamp_delta >> 63)) >> 7 << 7, found)
    return size, end


def _deltas_follow(first: bytes, second: bytes, index: int) -> bool:
    """Whether the columns of the offset deltas' bytes are those of ``index``, ``index + 1``, …"""
    if index < _BLOCK:
        return first == _ONE_BYTE_DELTAS[index : index + len(first)]
    start = index % _BIG_BLOCK
    stop = start + len(first)
    expected = _SECOND_BYTES if index < _BIG_BLOCK else _SECOND_OF_THREE
    return first == _FIRST_BYTES[start:stop] and second == expected[start:stop]


def _see_times(times: bytes, high: int, found: Walk) -> None:
    """Take note of timestamp deltas, of whose raw varints ``times`` are the lowest bytes and ``high`` the rest."""
    later = times.translate(None, _ODD_BYTES)
    if len(later) != len(times):
        for byte in {*times}:
            raw = high | byte & 127
            found._see((raw >> 1) ^ -(raw & 1))
        return
    latest = later[-1]
    later = later.translate(None, _EVERY_BYTE[: latest + 1])  # most often they rise: nothing is left
    if later:
        latest = max(later)
    found._see((high | latest & 127) >> 1)


_SIZES: list[int] = []
"""Gear 2: for two bytes as a little-endian number, the bytes of the varint there and of what it is the length of.

Varints of one and two bytes; odd ones are negative, the length of nothing. Half a megabyte, made on first use.
"""
_SHORT_SIZES: list[int] = []
"""The same for a record's length of one byte; two bytes are an IndexError."""


def _make_sizes() -> None:
    one_byte = [1 if low & 1 else 1 + (low >> 1) for low in range(128)]
    for high in range(128):
        _SIZES.extend(one_byte)
        _SIZES.extend([2 if low & 1 else 2 + (high << 6) + (low - 128 >> 1) for low in range(128, 256)])
    _SIZES.extend((one_byte + [_BAD] * 128) * 128)
    _SHORT_SIZES.extend([_BAD if low & 1 else 1 + (low >> 1) for low in range(128)])


class _Kind:
    """Gear 2: records whose length, timestamp delta and offset delta take so many bytes (1 or 2) each."""

    __slots__ = (
        "fixed",
        "key_mask",
        "length_sizes",
        "size_floor",
        "timestamp_bits",
        "timestamp_mask",
        "unpack",
    )

    def __init__(self, length_bytes: int, timestamp_bytes: int, delta_bytes: int) -> None:
        # The last byte of the record before, the length, the two deltas, the key length, and two bytes which
        # are the value length where the key is null. The third byte of an offset delta is read with the key
        # length: it is the same in a whole block.
        formats = ("", "B", "H", "H")
        key = "B" if delta_bytes < 3 else "H"
        self.unpack = Struct(
            f"<B{formats[length_bytes]}x{formats[timestamp_bytes]}{formats[delta_bytes]}{key}H"
        ).unpack_from
        self.key_mask = 129 if delta_bytes < 3 else 0xFFFF  # where it is read with that byte: null keys alone
        self.length_sizes, self.size_floor = (_SHORT_SIZES, 0) if length_bytes == 1 else (_SIZES, 65)
        self.timestamp_mask, self.timestamp_bits = (0x80, 0) if timestamp_bytes == 1 else (0x8080, 0x80)
        # Bytes of a record beside key and value: attributes, key length and header count take one each. The
        # value length of a record without a key stands as many bytes behind the last byte of the one before.
        self.fixed = length_bytes + timestamp_bytes + delta_bytes + 3


_KINDS = {(a, b, c): _Kind(a, b, c) for a in (1, 2) for b in (1, 2) for c in (1, 2, 3)}
_two_bytes = Struct("<H").unpack_from


def _stretch(data: bytes, position: int, limit: int, index: int, count: int, found: Walk) -> tuple[int, int]:
    """Gear 2: how many records could be read before one was of another kind, and the position after them."""
    if index >= _DELTA_MAX or position + 3 > limit:
        return 0, position
    if not _SIZES:
        _make_sizes()
    length_bytes = 1 if data[position] < 128 else 2
    timestamp_bytes = 1 if data[position + length_bytes + 1] < 128 else 2
    stop = min(count, (index | (_BLOCK - 1)) + 1)
    # The first two bytes of an offset delta, read as a little-endian number, also grow by 2 within a block.
    null_key = 1
    if index < _BLOCK:
        delta_bytes, first = 1, 2 * index
    else:
        delta_bytes, first = 2, index // _BLOCK << 8 | 128 | 2 * index & 127
        if index >= _BIG_BLOCK:
            delta_bytes, first = 3, first & 0x7FFF | 0x8000
            null_key = 1 << 8 | index // _BIG_BLOCK
    deltas = range(first, first + 2 * (stop - index), 2)
    kind = _KINDS[length_bytes, timestamp_bytes, delta_bytes]
    done, keyed, cursor, latest, negative = _read_alike(data, position - 1, deltas, null_key, kind)
    if done == 0:
        return 0, position
    if cursor >= limit or data[cursor]:
        raise DecodeError(f"record {index + done - 1}: headers where the record ends")
    if keyed < done:
        found.has_null_key = True
    for timestamp in (latest, *negative) if latest >= 0 else negative:
        raw = timestamp if timestamp_bytes == 1 else timestamp >> 8 << 7 | timestamp & 127
        found._see((raw >> 1) ^ -(raw & 1))
    return done, cursor + 1


def _read_alike(
    data: bytes, cursor: int, deltas: range, null_key: int, kind: _Kind
) -> tuple[int, int, int, int, list[int]]:
    """Read records of a kind, from the byte before the first, until one is not or the deltas are through.

    How many they were and how many had a key, the last byte of the last (its header count, not yet looked at),
    the greatest timestamp delta that is not negative (-1: none) and the negative ones, as they stand there.
    """
    unpack = kind.unpack
    length_sizes = kind.length_sizes
    size_floor = kind.size_floor
    mask = kind.timestamp_mask
    bits = kind.timestamp_bits
    fixed = kind.fixed
    key_mask = kind.key_mask
    sizes = _SIZES
    keyed = 0
    latest = last_timestamp = -1
    negative: list[int] = []
    delta = deltas.start
    try:
        for delta in deltas:
            before, length, timestamp, found_delta, key, value = unpack(data, cursor)
            size = length_sizes[length]
            if found_delta != delta or before or size <= size_floor:
                break
            if key == null_key:
                if size - sizes[value] != fixed:
                    break
            elif key & key_mask:
                break
            else:
                key_size = key >> 1
                if size - key_size - sizes[_two_bytes(data, cursor + fixed + key_size)[0]] != fixed:
                    break
                keyed += 1
            if timestamp != last_timestamp:
                if timestamp & mask != bits:
                    keyed -= key != null_key
                    break
                last_timestamp = timestamp
                if timestamp & 1:
                    negative.append(timestamp)
                elif timestamp > latest:
                    latest = timestamp
            cursor += size
        else:
            delta = deltas.stop
    except (IndexError, StructError):  # a length of two bytes where one was expected, or past the end
        pass
    return (delta - deltas.start) // 2, keyed, cursor, latest, negative
