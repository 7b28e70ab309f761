"""A part of a matrix in which each two values that occur together do so at least once.

A test that is marked ``pairwise`` runs with such a part of its parameters, and with all of them where Kafka is asked
(`make test-kafka`). Most faults of a combination are faults of two of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import pytest

from tests.common.recorded.plugin import recorder_of
from tests.common.recorded.recorder import ASKED, is_half

Row = dict[str, Hashable]
Pair = tuple[tuple[str, Hashable], ...]
T = TypeVar("T")


def pairs(row: Row) -> Iterator[Pair]:
    """Each two values of a row; of a row with one value, that one."""
    named = sorted(row.items())
    return combinations(named, min(2, len(named)))


def pairwise(rows: Sequence[T], values: Callable[[T], Row]) -> list[T]:
    """Some of the rows, in their order, in which each pair of values stands that stands in any of them."""
    open_pairs = {pair for row in rows for pair in pairs(values(row))}
    chosen: set[int] = set()
    while open_pairs:
        # max gives the first of several: each run chooses the same.
        best = max(range(len(rows)), key=lambda at: len(open_pairs.intersection(pairs(values(rows[at])))))
        chosen.add(best)
        open_pairs.difference_update(pairs(values(rows[best])))
    return [row for at, row in enumerate(rows) if at in chosen]


def values_of(item: pytest.Item) -> Row:
    """The parameters of a test, with those in place of one that the marker's function gives for it."""
    callspec = getattr(item, "callspec", None)
    row: Row = dict(callspec.params) if callspec is not None else {}
    marker = item.get_closest_marker("pairwise")
    assert marker is not None
    for name, parts in marker.kwargs.items():
        row.update(parts(row.pop(name)))
    return row


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each matrix what is not needed. Kafka's halves stay, which run only if they have to."""
    if recorder_of(config).mode == ASKED:
        return
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("pairwise") is not None and not is_half(item):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    wanted = {item for matrix in matrices.values() for item in pairwise(matrix, values_of)}
    gone = {item for matrix in matrices.values() for item in matrix} - wanted
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]
