"""Long work in the loop is done a slice at a time, so that a request never waits longer than a slice for it.

Slices are measured in real time: a test that moves broker time does not shorten work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Iterable

SLICE_S = 0.001
"""Seconds of work after which other tasks get their turn."""

SLICE_STEPS_MAX = 1_000
"""Steps after which a slice ends in any case: a virtual clock stands still during work."""


class Slices:
    """For work whose steps each take much less than `SLICE_S`: ``if slices.is_over(): await slices.pause()``."""

    __slots__ = ("_count", "_end")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._end = real_time.monotonic() + SLICE_S

    def is_over(self) -> bool:
        """Call it after each step: whether the slice is over."""
        self._count += 1
        return self._count >= SLICE_STEPS_MAX or real_time.monotonic() >= self._end

    async def pause(self) -> None:
        """Let other tasks run, then begin a new slice."""
        await trio.lowlevel.checkpoint()
        self._begin()


async def in_slices(steps: Iterable[object]) -> None:
    """Exhaust an iterator, a slice at a time. Each of its steps should take much less than `SLICE_S`."""
    slices = Slices()
    for _ in steps:
        if slices.is_over():
            await slices.pause()
