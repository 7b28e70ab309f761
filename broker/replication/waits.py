"""`OffsetWaits`: who waits until an offset of a partition passes another one, or until that can no longer happen."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ABANDONED_MAX = 64
"""Waits that were given up and are still remembered, at least: with more, they are forgotten when they are half of
all.
"""


class _Wait:
    __slots__ = ("code", "event", "is_abandoned")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.code = ErrorCode.NONE
        """The error with which it has ended."""
        self.is_abandoned = False


class OffsetWaits:
    """The waits of one partition for one kind of offset (Kafka: ``DelayedOperationPurgatory``)."""

    __slots__ = ("_abandoned", "_counter", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Wait]] = []
        """By offset; the second number tells waits for the same offset apart."""
        self._counter = count()
        self._abandoned = 0

    def __len__(self) -> int:
        return len(self._heap) - self._abandoned

    def reach(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """End the waits for ``offset`` and for those below it; with an error if one is given."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            self._end(heappop(heap)[2], code)

    def fail(self, code: ErrorCode) -> None:
        """End all waits with that error."""
        heap, self._heap = self._heap, []
        for _, _, wait in heap:
            self._end(wait, code)

    def _end(self, wait: _Wait, code: ErrorCode) -> None:
        if wait.is_abandoned:
            self._abandoned -= 1
        wait.code = code
        wait.event.set()

    async def wait(
        self, offset: int, timeout_s: float, first: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Wait until ``offset`` is reached; ``first`` is awaited before, within the time.

        Raises KafkaError: REQUEST_TIMED_OUT after ``timeout_s`` seconds of real time, and the error with which the wait
        was ended.
        """
        wait = _Wait()
        heappush(self._heap, (offset, next(self._counter), wait))
        try:
            with real_time.move_on_after(max(0.0, timeout_s)):
                if first is not None:
                    await first()
                await wait.event.wait()
        finally:
            if not wait.event.is_set():
                self._abandon(wait)
        if wait.is_abandoned:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if wait.code:
            raise KafkaError(wait.code)

    def _abandon(self, wait: _Wait) -> None:
        wait.is_abandoned = True
        self._abandoned += 1
        if self._abandoned > max(ABANDONED_MAX, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].is_abandoned]
            heapify(self._heap)
            self._abandoned = 0
