"""Work for several share partitions at the same time, as Kafka's ``SharePartitionManager`` does it with futures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from oncelog.broker.scheduling.slices import Slices

AT_ONCE = 20
"""States that are changed at the same time: they share a flush, and take no longer than a slice."""

T = TypeVar("T")


async def each(things: Sequence[T], call: Callable[[T], Awaitable[None]]) -> None:
    """Call ``call`` with each thing, with up to `AT_ONCE` at the same time."""
    if len(things) == 1:
        await call(things[0])
        return
    slices = Slices()
    for begin in range(0, len(things), AT_ONCE):
        async with trio.open_nursery() as nursery:
            for thing in things[begin : begin + AT_ONCE]:
                nursery.start_soon(call, thing)
        if slices.is_over():
            await slices.pause()
