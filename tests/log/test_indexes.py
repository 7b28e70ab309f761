"""The index files: their bytes, and every look-up against a plain list."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.log.indexes import (
    AbortedTxn,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from tests.sim.files import SimFileSystem

BASE = 1_000


def disk() -> SimFileSystem:
    files = SimFileSystem(random.Random(0))
    files.makedirs("/data")
    return files


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 900)), max_size=1_200),
    writes=st.sets(st.integers(0, 1_200), max_size=4),
    cut=st.integers(0, 20_000),
)
@settings(max_examples=40, deadline=None)
def test_offset_index_against_a_list(steps: list[tuple[int, int]], writes: set[int], cut: int) -> None:
    files = disk()
    index = OffsetIndex(files, "/data/x.index", BASE, new=True)
    rows: list[tuple[int, int]] = []
    offset, position = BASE - 1, 0
    for at, (ahead, size) in enumerate(steps):
        offset, position = offset + ahead, position + size
        index.append(offset, position)
        rows.append((offset, position))
        if at in writes:
            index.write()
    compare_offsets(index, rows)
    index.truncate_to(BASE + cut)
    rows = [row for row in rows if row[0] < BASE + cut]
    compare_offsets(index, rows)
    index.write()
    index.close()
    stored = b"".join(struct.pack(">ii", offset - BASE, position) for offset, position in rows)
    assert files.read_bytes("/data/x.index") == stored
    compare_offsets(OffsetIndex(files, "/data/x.index", BASE, new=False), rows)


def compare_offsets(index: OffsetIndex, rows: list[tuple[int, int]]) -> None:
    assert index.entries == len(rows)
    assert index.last == (rows[-1] if rows else (BASE, 0))
    wanted = {
        BASE,
        BASE + 60_000,
        *(row[0] + step for row in rows[:: max(1, len(rows) // 30)] for step in (-1, 0, 1)),
    }
    for offset in wanted:
        assert index.lookup(offset) == max((row for row in rows if row[0] <= offset), default=(BASE, 0))
    for position in {0, *(row[1] + step for row in rows[:: max(1, len(rows) // 30)] for step in (-1, 0, 1))}:
        above = [row[0] for row in rows if row[1] >= position]
        assert index.upper_bound_offset(position) == (min(above) if above else None)
        assert index.position_before(position) == max(
            (row[1] for row in rows if row[1] <= position), default=0
        )


@given(
    steps=st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 3)), max_size=1_200),
    writes=st.sets(st.integers(0, 1_200), max_size=4),
    cut=st.integers(0, 2_000),
)
@settings(max_examples=40, deadline=None)
def test_time_index_against_a_list(steps: list[tuple[int, int]], writes: set[int], cut: int) -> None:
    files = disk()
    index = TimeIndex(files, "/data/x.timeindex", BASE, new=True)
    rows: list[tuple[int, int]] = []
    timestamp, offset = 10_000, BASE
    for at, (later, ahead) in enumerate(steps):
        timestamp, offset = timestamp + later, offset + ahead
        index.maybe_append(timestamp, offset)
        if not rows or timestamp > rows[-1][0]:
            rows.append((timestamp, offset))
        if at in writes:
            index.write()
    compare_times(index, rows)
    index.truncate_to(BASE + cut)
    rows = [row for row in rows if row[1] < BASE + cut]
    compare_times(index, rows)
    index.write()
    stored = b"".join(struct.pack(">qi", timestamp, offset - BASE) for timestamp, offset in rows)
    assert files.read_bytes("/data/x.timeindex") == stored
    compare_times(TimeIndex(files, "/data/x.timeindex", BASE, new=False), rows)


def compare_times(index: TimeIndex, rows: list[tuple[int, int]]) -> None:
    assert index.entries == len(rows)
    assert (index.last_timestamp, index.last_offset) == (rows[-1] if rows else (-1, BASE))
    for timestamp in {
        0,
        1 << 40,
        *(row[0] + step for row in rows[:: max(1, len(rows) // 30)] for step in (-1, 0, 1)),
    }:
        assert index.lookup(timestamp) == max(
            (row for row in rows if row[0] <= timestamp), default=(-1, BASE)
        )


def test_full() -> None:
    offsets = OffsetIndex(disk(), "/data/x.index", BASE, new=True)
    times = TimeIndex(disk(), "/data/x.timeindex", BASE, new=True)
    for at in range(3):
        offsets.append(BASE + at, 100 + at)
        times.maybe_append(at, BASE + at)
    assert offsets.is_full(3 * 8 + 7)
    assert not offsets.is_full(4 * 8)
    # One slot of a time index is kept for the entry that a roll adds.
    assert times.is_full(4 * 12)
    assert not times.is_full(5 * 12)


def test_a_write_that_fails_keeps_the_entries() -> None:
    import errno

    from tests.sim.files import Fault

    files = disk()
    index = OffsetIndex(files, "/data/x.index", BASE, new=True)
    index.append(BASE + 1, 10)
    files.faults.append(Fault("write", errno.ENOSPC, after_bytes=3, times=1))
    with pytest.raises(OSError, match="No space"):
        index.write()
    assert index.lookup(BASE + 5) == (BASE + 1, 10)
    index.append(BASE + 2, 20)
    index.write()
    assert files.read_bytes("/data/x.index") == struct.pack(">iiii", 1, 10, 2, 20)


def test_check_stops_at_what_cannot_be() -> None:
    files = disk()
    files.replace("/data/x.index", struct.pack(">iiiiiiii", 5, 100, 9, 200, 0, 0, 12, 300) + b"\0\0\0")
    index = OffsetIndex(files, "/data/x.index", BASE, new=False)
    assert index.entries == 4
    assert index.sound_entries(1_000) == 2
    assert index.sound_entries(150) == 1
    index.keep(2)
    index.append(BASE + 10, 250)
    index.write()
    assert files.read_bytes("/data/x.index") == struct.pack(">iiiiii", 5, 100, 9, 200, 10, 250)

    files.replace("/data/x.timeindex", struct.pack(">qiqiqi", 50, 3, 60, 7, 60, 9))
    times = TimeIndex(files, "/data/x.timeindex", BASE, new=False)
    assert times.sound_entries(BASE + 100) == 2
    assert times.sound_entries(BASE + 7) == 1


def test_transaction_index() -> None:
    files = disk()
    index = TransactionIndex(files, "/data/x.txnindex", BASE, new=True)
    assert index.collect(0, 10**9) == ([], False)
    assert not files.exists("/data/x.txnindex")
    rows = [
        AbortedTxn(7, 1_000, 1_010, 1_005),
        AbortedTxn(8, 1_005, 1_020, 1_021),
        AbortedTxn(7, 1_030, 1_040, 1_041),
    ]
    for row in rows:
        index.append(row)
    index.write()
    stored = b"".join(struct.pack(">hqqqq", 0, *row) for row in rows)
    assert files.read_bytes("/data/x.txnindex") == stored
    index = TransactionIndex(files, "/data/x.txnindex", BASE, new=False)
    assert index.collect(1_000, 1_003) == ([rows[0]], True)
    assert index.collect(1_015, 1_022) == ([rows[1]], True)
    assert index.collect(1_041, 2_000) == ([], False)
    index.truncate_to(1_020)
    assert list(index.transactions()) == rows[:1]
    files.replace("/data/y.txnindex", struct.pack(">hqqqq", 1, 0, 0, 0, 0))
    with pytest.raises(CorruptIndex):
        list(TransactionIndex(files, "/data/y.txnindex", BASE, new=False).transactions())
