"""Which tests of a matrix run. All of them do where Kafka is asked (`make test-kafka`), or a test is asked for by name.

- ``pairwise(name=parts)``: a part in which each two values that occur together do so at least once. Most faults of a
  combination are faults of two of its values. ``parts`` gives the values that stand in one parameter's.
- ``in_turn(count, of=group)``: so many tests a day, of each group that ``group`` gives for a test's parameters. The day
  is that of the run, or of the variable TESTS_DAY; its number stands at the head of pytest's output.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import pytest

from tests.common.recorded.plugin import recorder_of
from tests.common.recorded.recorder import ASKED, is_half

DAY = "TESTS_DAY"

Row = dict[str, Hashable]
Pair = tuple[tuple[str, Hashable], ...]
T = TypeVar("T")


def configure(config: pytest.Config) -> None:
    """Make the markers known, and say the day: pytest's workers have it from the process that starts them."""
    config.addinivalue_line("markers", "pairwise(**parts): a matrix of tests (compat_tests/matrices.py)")
    config.addinivalue_line("markers", "in_turn(count, of): so many tests a day (compat_tests/matrices.py)")
    os.environ.setdefault(DAY, str(datetime.datetime.now(datetime.UTC).date().toordinal()))


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


def in_turn(rows: Sequence[T], count: int, day: int) -> list[T]:
    """So many of the rows, in their order; each comes in its turn, from day to day."""
    if count >= len(rows):
        return list(rows)
    first = day * count
    chosen = {(first + number) % len(rows) for number in range(count)}
    return [row for at, row in enumerate(rows) if at in chosen]


def params_of(item: pytest.Item) -> Mapping[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def values_of(item: pytest.Item, marker: pytest.Mark) -> Row:
    """The parameters of a test, with those in place of one that the marker's function gives for it."""
    row: Row = dict(params_of(item))
    for name, parts in marker.kwargs.items():
        row.update(parts(row.pop(name)))
    return row


def chosen(tests: list[pytest.Item], marker: pytest.Mark) -> list[pytest.Item]:
    """Those tests of a matrix that run."""
    if marker.name == "pairwise":
        return pairwise(tests, lambda item: values_of(item, marker))
    groups: dict[Hashable, list[pytest.Item]] = {}
    group_of = marker.kwargs.get("of")
    for item in tests:
        groups.setdefault(group_of(**params_of(item)) if group_of else None, []).append(item)
    day = int(os.environ[DAY])
    return [item for some in groups.values() for item in in_turn(some, marker.args[0], day)]


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each matrix what is not needed. Kafka's halves stay, which run only if they have to."""
    recorder = recorder_of(config)
    if recorder.mode == ASKED or config.option.keyword or any("::" in one for one in config.args):
        return
    matrices: dict[str, tuple[pytest.Mark, list[pytest.Item]]] = {}
    for item in items:
        marker = item.get_closest_marker("pairwise") or item.get_closest_marker("in_turn")
        if marker is not None and not is_half(item):
            matrices.setdefault(item.nodeid.partition("[")[0], (marker, []))[1].append(item)
    wanted = {item for marker, tests in matrices.values() for item in chosen(tests, marker)}
    gone = {item for _, tests in matrices.values() for item in tests} - wanted
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]
