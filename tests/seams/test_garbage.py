"""The garbage collector of a server: a large request sets off no collection of all objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from oncelog.broker.seams import garbage

ROWS = 400_000
"""The objects of a request with 100,000 rows, of its response and of what is between them."""


@pytest.fixture
def settled() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    garbage.settle()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_a_large_request_sets_off_no_full_collection(settled: None) -> None:
    assert gc.isenabled()
    full = gc.get_stats()[-1]["collections"]
    rows = [[number] for number in range(ROWS)]
    assert gc.get_stats()[-1]["collections"] == full
    assert len(rows) == ROWS


def test_young_garbage_is_found(settled: None) -> None:
    found = gc.get_stats()[0]["collections"]
    for _ in range(2_000):
        one: list[object] = []
        one.append(one)
    assert gc.get_stats()[0]["collections"] > found
