"""Long work in the loop is done a slice at a time, so that a request never waits longer than a slice for it.

Slices are measured in real time: a test that moves broker time does not shorten work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from oncelog.broker.seams.clock import real_time

SLICE_S = 0.001
"""Seconds of work after which other tasks get their turn."""

SLICE_STEPS_MAX = 1_000
"""Steps after which a slice ends in any case: a virtual clock stands still during work."""


class Slices:
    """For work whose steps each take much less than `SLICE_S`: ``if slices.is_over(): await slices.pause()``.

    A slice ends after ``steps_max`` steps in any case, by default after `SLICE_STEPS_MAX`.
    """

    __slots__ = ("_count", "_end", "_steps_max")

    def __init__(self, steps_max: int | None = None) -> None:
        self._steps_max = steps_max or SLICE_STEPS_MAX
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._end = real_time.monotonic() + SLICE_S

    def is_over(self) -> bool:
        """Call it after each step: whether the slice is over."""
        self._count += 1
        return self._count >= self._steps_max or real_time.monotonic() >= self._end

    async def pause(self) -> None:
        """Let other tasks run, then begin a new slice."""
        await trio.lowlevel.checkpoint()
        self._begin()


async def in_slices(steps: Iterable[object], steps_max: int | None = None) -> Any:
    """Take all steps of an iterator, a slice at a time. Each should take much less than `SLICE_S`.

    Returns the result if it is a generator that has one.
    """
    slices = Slices(steps_max)
    iterator = iter(steps)
    while True:
        try:
            next(iterator)
        except StopIteration as end:
            return end.value
        if slices.is_over():
            await slices.pause()
