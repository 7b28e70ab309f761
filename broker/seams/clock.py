"""Time, of which the broker knows three kinds.

- **Broker time** rules timestamps, retention, sessions, transactions and expiry. It is one `Clock` for each
node, which is passed in, and which a test may move (`MovableClock`).
- **Real time** bounds waits for a peer (a socket's idle time, a Fetch's max wait, a request's patience) and
pauses after a failure. It is `real_time`, which no test moves.
- **A slice of work** (`oncelog.broker.slices`) is measured in real time too.

All waits follow Trio's clock, so the virtual clock of a simulation rules them.
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
        """Seconds that never go back; only their differences have a meaning. Deadlines are in this time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` seconds. Always a checkpoint. Raises ValueError for a negative number."""
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Wait until `monotonic` has reached ``deadline``. Always a checkpoint."""
        ...

    def move_on_at(self, deadline: float) -> AbstractContextManager[trio.CancelScope]:
        """A scope that is cancelled when `monotonic` reaches ``deadline`` (`math.inf`: never). The caller must
        not set the scope's own deadline, which is in Trio's time."""
        ...

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """`move_on_at`, ``seconds`` from now."""
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
"""The clock for everything that no test may move. Its name shows at every use that broker time is not meant."""


class MovableClock:
    """Broker time that runs as real time does, and jumps ahead when a test says so (`advance`).

    A jump ends the waits whose deadlines it passes; the others end that much sooner. Only Trio's thread may use
    it.
    """

    def __init__(self, wall_now_ms: Callable[[], int] = real_time.now_ms) -> None:
        self._wall_now_ms = wall_now_ms
        self._ahead_s = 0.0
        self._deadlines: dict[trio.CancelScope, float] = {}
        """The deadlines of all current waits, in this clock's time."""

    def advance(self, seconds: float) -> None:
        """Jump ahead by ``seconds``. Tasks whose deadlines have passed run as soon as the caller waits.

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
