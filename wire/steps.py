"""Long work as a generator: it yields after each step, and returns its result.

A step takes much less than a millisecond, whatever a peer has sent. The caller decides what happens between two steps:
nothing (`finish`), or other work (`oncelog.broker.scheduling.slices`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def listed(items: Iterable[T]) -> Steps[list[T]]:
    """Return a list of the items, one at each step."""
    found: list[T] = []
    for item in items:
        found.append(item)
        yield
    return found


def finish(steps: Steps[T]) -> T:
    """Take all steps at once. Returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def take(steps: Steps[T], count: int) -> T | None:
    """Take at most ``count`` steps. Returns the result, or None if there are more: the caller goes on with them."""
    try:
        for _ in range(count):
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return None
