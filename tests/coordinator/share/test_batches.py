"""`combine`, against what it means for each single offset."""

from __future__ import annotations

import itertools
import random

import pytest

from oncelog.coordinator.share.batches import combine
from oncelog.coordinator.share.state import DeliveryState, StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)


def by_offset(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """The delivery count and state of each offset; the higher one where batches overlap."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


def random_batch(rng: random.Random) -> StateBatch:
    first = rng.randrange(40)
    state = rng.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
    return StateBatch(first, first + rng.randrange(12), state, rng.randrange(1, 4))


@pytest.mark.parametrize("seed", range(300))
def test_means_the_same_for_each_offset(seed: int) -> None:
    rng = random.Random(seed)
    current: list[StateBatch] = []
    for _ in range(30):
        new = [random_batch(rng) for _ in range(rng.randrange(4))]
        start = rng.choice((-1, -1, rng.randrange(30)))
        expected = {offset: state for offset, state in by_offset([*current, *new]).items() if offset >= start}
        combine(current, new, start)
        assert by_offset(current) == expected
        for before, after in itertools.pairwise(current):
            assert before.last_offset < after.first_offset
            if before.last_offset + 1 == after.first_offset:
                assert before[2:] != after[2:], "neighbours of one state are joined"


def test_puts_nothing_before_the_start() -> None:
    current = [StateBatch(0, 9, ACKNOWLEDGED, 1), StateBatch(12, 14, AVAILABLE, 2)]
    combine(current, [StateBatch(3, 4, ARCHIVED, 5), StateBatch(6, 8, ACKNOWLEDGED, 3)], 7)
    assert current == [
        StateBatch(7, 8, ACKNOWLEDGED, 3),
        StateBatch(9, 9, ACKNOWLEDGED, 1),
        StateBatch(12, 14, AVAILABLE, 2),
    ]


def test_splits_a_batch_around_a_newer_one() -> None:
    current = [StateBatch(0, 99, AVAILABLE, 1)]
    combine(current, [StateBatch(10, 19, ACKNOWLEDGED, 1), StateBatch(30, 30, ARCHIVED, 2)], -1)
    assert current == [
        StateBatch(0, 9, AVAILABLE, 1),
        StateBatch(10, 19, ACKNOWLEDGED, 1),
        StateBatch(20, 29, AVAILABLE, 1),
        StateBatch(30, 30, ARCHIVED, 2),
        StateBatch(31, 99, AVAILABLE, 1),
    ]
