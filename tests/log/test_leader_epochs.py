"""Leader epochs: what Kafka's LeaderEpochFileCache answers, and the checkpoint's text."""

from __future__ import annotations

import random

import pytest

from oncelog.broker.log.leader_epochs import CorruptCheckpoint, LeaderEpochs, parse_checkpoint
from tests.sim.files import SimFileSystem


def epochs(*rows: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in rows:
        made.assign(epoch, start)
    return made


@pytest.mark.parametrize(
    ("rows", "assigned", "left"),
    [
        ([], (0, 0), [(0, 0)]),
        ([(0, 0)], (0, 5), [(0, 0)]),
        ([(0, 5)], (0, 3), [(0, 3)]),
        ([(0, 0)], (2, 7), [(0, 0), (2, 7)]),
        ([(0, 0), (2, 7)], (3, 7), [(0, 0), (3, 7)]),
        ([(0, 0), (2, 7), (4, 9)], (5, 8), [(0, 0), (2, 7), (5, 8)]),
        ([(0, 0), (2, 7), (4, 9)], (1, 20), [(0, 0), (1, 20)]),
    ],
)
def test_assign(rows: list[tuple[int, int]], assigned: tuple[int, int], left: list[tuple[int, int]]) -> None:
    made = epochs(*rows)
    made.assign(*assigned)
    assert made.entries() == left
    assert made.latest == left[-1][0]


@pytest.mark.parametrize("row", [(-1, 0), (0, -1)])
def test_assign_nonsense(row: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="leader epoch"):
        epochs(row)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before all that is known: it ended where the first known one began
        (1, (1, 10)),
        (2, (2, 20)),
        (5, (2, 20)),  # never was
        (6, (6, 50)),  # still going on
        (7, (-1, -1)),
    ],
)
def test_end_offset(epoch: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 10), (6, 20)).end_offset_for(epoch, 50) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert epochs().end_offset_for(0, 0) == (-1, -1)
    assert epochs().epoch_for(0) == -1


def test_truncation() -> None:
    made = epochs((0, 0), (1, 10), (2, 20))
    assert [made.epoch_for(offset) for offset in (0, 9, 10, 20, 99)] == [0, 0, 1, 2, 2]
    made.truncate_from_end(20)
    assert made.entries() == [(0, 0), (1, 10)]
    made.truncate_from_start(5)
    assert made.entries() == [(0, 5), (1, 10)]
    made.truncate_from_start(10)
    assert made.entries() == [(1, 10)]
    made.truncate_from_start(3)
    assert made.entries() == [(1, 10)]
    made.truncate_from_end(10)
    assert made.entries() == []
    assert made.latest == -1


def test_file() -> None:
    files = SimFileSystem(random.Random(0))
    assert LeaderEpochs.load(files, "/leader-epoch-checkpoint").entries() == []
    made = epochs((0, 0), (3, 1234567890123))
    assert made.changed
    assert made.encode() == b"0\n2\n0 0\n3 1234567890123\n"
    files.replace("/leader-epoch-checkpoint", made.encode())
    loaded = LeaderEpochs.load(files, "/leader-epoch-checkpoint")
    assert loaded.entries() == made.entries()
    assert not loaded.changed
    assert parse_checkpoint(b"", "p") == []


@pytest.mark.parametrize(
    "text", [b"1\n0\n", b"0\n1\n", b"0\n1\n1 2 3\n", b"0\nx\n", b"0\n1\n1 y\n", b"0\n1\n1 2\n3 4\n"]
)
def test_a_malformed_file(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_checkpoint(text, "/leader-epoch-checkpoint")
