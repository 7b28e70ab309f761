"""Long work in the loop, a slice at a time, so that requests never wait for it longer than a slice.

Real time: moving broker time shortens no work.
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
"""Steps after which they do even when no time has gone by: a virtual clock stands still while we work."""


class Slices:
    """For work whose steps each take much less than `SLICE_S`: ``if slices.is_over(): await slices.pause()``."""

    __slots__ = ("_count", "_end")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._end = real_time.monotonic() + SLICE_S

    def is_over(self) -> bool:
        """After a step: whether it is others' turn."""
        self._count += 1
        return self._count >= SLICE_STEPS_MAX or real_time.monotonic() >= self._end

    async def pause(self) -> None:
        """Let the others have their turn."""
        await trio.lowlevel.checkpoint()
        self._begin()


async def in_slices(steps: Iterable[object]) -> None:
    """Run an iterator to its end; each of its steps should take much less than `SLICE_S`."""
    slices = Slices()
    for _ in steps:
        if slices.is_over():
            await slices.pause()
