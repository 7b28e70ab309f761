"""Time, of which the broker knows three kinds.

- **Broker time** is what records, sessions, transactions and retention are about. It is one `Clock` for each node,
  passed in, and a test may move it (`MovableClock`).
- **Real time** bounds how long a peer is waited for: a socket's idle time, a Fetch's max wait, a request's patience, a
  pause after a failure. It is `real_time`, which no test moves.
- **A slice of work** (`oncelog.broker.slices`) is measured in real time too.

Both clocks wait by Trio's clock, so that the virtual clock of a simulation rules them all.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class Clock(Protocol):
    """Tells the time and waits for it. All but `now_ms` need a running Trio."""

    def now_ms(self) -> int:
        """Wall time, in milliseconds since 1970-01-01 UTC. It may jump either way: a difference of two readings may
        be wrong."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything. Deadlines are given in these."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so long. A checkpoint in any case. Raises ValueError for a negative number."""
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Wait until `monotonic` has reached ``deadline``. A checkpoint in any case."""
        ...

    def move_on_at(self, deadline: float) -> AbstractContextManager[trio.CancelScope]:
        """A scope that is cancelled when `monotonic` reaches ``deadline`` (`math.inf`: never). The caller leaves the
        scope's own deadline, which is in Trio's time, alone."""
        ...

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """`move_on_at` in so many seconds from now."""
        ...


class SystemClock:
    """The machine's wall clock, and Trio's clock for the rest."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(trio.current_time)
    sleep = staticmethod(trio.sleep)
    sleep_until = staticmethod(trio.sleep_until)
    move_on_at = staticmethod(trio.move_on_at)
    move_on_after = staticmethod(trio.move_on_after)


real_time: Final = SystemClock()
"""For what no test may move. Every use says by this name that broker time is not meant."""


class MovableClock:
    """Broker time that runs as real time does, and jumps ahead when a test says so (`advance`).

    A wait whose deadline a jump passes ends at once; the others end as much sooner. To be called from Trio's thread.
    """

    def __init__(self, wall_now_ms: Callable[[], int] = real_time.now_ms) -> None:
        self._wall_now_ms = wall_now_ms
        self._ahead_s = 0.0
        self._deadlines: dict[trio.CancelScope, float] = {}
        """Of the waits that are under way, in this clock's seconds."""

    def advance(self, seconds: float) -> None:
        """Jump ahead. Those whose deadlines come due by it run when the caller waits next.

        Raises ValueError for a negative number: time does not go back.
        """
        if not seconds >= 0:
            raise ValueError(f"time cannot be moved by {seconds} seconds: only ahead")
        self._ahead_s += seconds
        for scope, deadline in self._deadlines.items():
            scope.deadline = self._trio_deadline(deadline)

    def _trio_deadline(self, deadline: float) -> float:
        return deadline - self._ahead_s

    def now_ms(self) -> int:
        return self._wall_now_ms() + round(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return trio.current_time() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        await self.sleep_until(self.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        with self.move_on_at(deadline):
            await trio.sleep_forever()

    @contextmanager
    def move_on_at(self, deadline: float) -> Iterator[trio.CancelScope]:
        with trio.CancelScope(deadline=self._trio_deadline(deadline)) as scope:
            self._deadlines[scope] = deadline
            try:
                yield scope
            finally:
                del self._deadlines[scope]

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return self.move_on_at(self.monotonic() + seconds)
