"""Time, of which the broker knows three kinds.

- **Broker time** rules timestamps, retention, sessions, transactions and expiry. It is one `Clock` for each
node, which is passed in, and which a test may move (`MovableClock`).
- **Real time** bounds waits for a peer (a socket's idle time, a Fetch's max wait, a request's patience) and
pauses after a failure. It is `real_time`, which no test moves.
- **A slice of work** (`oncelog.broker.scheduling.slices`) is measured in real time too.

All waits follow Trio's clock, so the virtual clock of a simulation rules them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

import trio

from oncelog.broker.seams.machine_time import wall_ms


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

    async def pause(self, seconds: float) -> None:
        """Wait ``seconds`` between two rounds of periodic work. Always a checkpoint.

        The work must find out itself what is due: where a test moves time, the next round may begin earlier.
        """
        ...

    def move_on_at(self, deadline: float) -> AbstractContextManager[trio.CancelScope]:
        """A scope that is cancelled when `monotonic` reaches ``deadline`` (`math.inf`: never). The caller must
        not set the scope's own deadline, which is in Trio's time."""
        ...

    def move_on_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """`move_on_at`, ``seconds`` from now."""
        ...


class SkewedClock:
    """The time of one node of several: ``shared``, but for the wall time, which is ``skew_ms`` milliseconds ahead of it
    (behind it, if negative), as clocks of machines differ.
    """

    __slots__ = (
        "_shared",
        "monotonic",
        "move_on_after",
        "move_on_at",
        "pause",
        "skew_ms",
        "sleep",
        "sleep_until",
    )

    def __init__(self, shared: Clock) -> None:
        self.skew_ms = 0
        self._shared = shared
        self.monotonic = shared.monotonic
        self.sleep = shared.sleep
        self.sleep_until = shared.sleep_until
        self.pause = shared.pause
        self.move_on_at = shared.move_on_at
        self.move_on_after = shared.move_on_after

    def now_ms(self) -> int:
        return self._shared.now_ms() + self.skew_ms


class SystemClock:
    """The machine's wall clock, and Trio's clock for the rest."""

    __slots__ = ()

    def now_ms(self) -> int:
        return wall_ms()

    monotonic = staticmethod(trio.current_time)
    sleep = staticmethod(trio.sleep)
    sleep_until = staticmethod(trio.sleep_until)
    pause = staticmethod(trio.sleep)
    move_on_at = staticmethod(trio.move_on_at)
    move_on_after = staticmethod(trio.move_on_after)


real_time: Final = SystemClock()
"""The clock for everything that no test may move. Its name shows at every use that broker time is not meant."""


class MovableClock:
    """Broker time that runs as real time does, until a test moves it: `advance`, `set`, `freeze`, `resume`.

    A jump ends the waits whose deadlines it passes; the others end that much sooner. While time is frozen, no wait ends
    but by a jump. Only Trio's thread may use it.
    """

    def __init__(self, wall_now_ms: Callable[[], int] = real_time.now_ms, *, ahead_ms: float = 0.0) -> None:
        """``wall_now_ms`` is the machine's wall time, from which broker time differs by ``ahead_ms`` (which may be
        negative) at the beginning."""
        self._wall_now_ms = wall_now_ms
        self._wall_ahead_ms = ahead_ms
        self._ahead_s = 0.0
        """How far `monotonic` is ahead of Trio's clock while time runs."""
        self._frozen_at: float | None = None
        """What `monotonic` reads while time is frozen."""
        self._frozen_wall_ms = 0.0
        self._deadlines: dict[trio.CancelScope, float] = {}
        """The deadlines of all current waits, in this clock's time."""
        self._pauses: set[trio.CancelScope] = set()
        """Those of them that are pauses between rounds of periodic work."""

    @classmethod
    def frozen_at(cls, wall_ms: int, wall_now_ms: Callable[[], int] = real_time.now_ms) -> MovableClock:
        """Return a clock that stands still at a wall time, in milliseconds since 1970-01-01 UTC. Needs a running Trio.

        To freeze a clock that is as far ahead is not the same: the machine's time goes on in between.
        """
        clock = cls(wall_now_ms)
        clock.freeze()
        clock._frozen_wall_ms = float(wall_ms)
        return clock

    # -- moving it

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still."""
        return self._frozen_at is not None

    @property
    def ahead_ms(self) -> float:
        """Milliseconds by which wall time is ahead of the machine's; behind it, if negative."""
        if self._frozen_at is None:
            return self._wall_ahead_ms
        return self._frozen_wall_ms - self._wall_now_ms()

    def advance(self, seconds: float) -> None:
        """Jump ahead by ``seconds``. Tasks whose deadlines have passed run as soon as the caller waits.

        Raises ValueError for a negative number: time does not go back.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time cannot be moved by {seconds} seconds: only ahead")
        if self._frozen_at is None:
            self._ahead_s += seconds
            self._wall_ahead_ms += seconds * 1000
        else:
            self._frozen_at += seconds
            self._frozen_wall_ms += seconds * 1000
        self._reschedule()

    def advance_to(self, deadline: float) -> None:
        """Jump ahead to the time at which a wait for ``deadline`` ends; do nothing if it has passed."""
        seconds = deadline - self.monotonic()
        if seconds > 0:
            self.advance(seconds)
            if self._frozen_at is not None:
                self._frozen_at = max(
                    self._frozen_at, deadline
                )  # a sum of floats may be too small by its last bit
                self._reschedule()

    def set(self, wall_ms: int) -> None:
        """Jump ahead to a wall time, in milliseconds since 1970-01-01 UTC. Raises ValueError for a time in the past."""
        now_ms = self.now_ms()
        if wall_ms < now_ms:
            raise ValueError(
                f"time cannot be set back: it is {now_ms} (ms), {(now_ms - wall_ms) / 1000} s after {wall_ms}"
            )
        self.advance((wall_ms - now_ms) / 1000)

    def freeze(self) -> None:
        """Let time stand still until `resume`; `advance` and `set` still move it. Does nothing if it stands already."""
        if self._frozen_at is None:
            self._frozen_wall_ms = self._wall_now_ms() + self._wall_ahead_ms
            self._frozen_at = self.monotonic()
            self._reschedule()

    def resume(self) -> None:
        """Let time run again, from where it stands: the real time that has passed since `freeze` is left out for good.
        Does nothing if it runs."""
        if self._frozen_at is not None:
            self._ahead_s = self._frozen_at - trio.current_time()
            self._wall_ahead_ms = self._frozen_wall_ms - self._wall_now_ms()
            self._frozen_at = None
            self._reschedule()

    def end_pauses(self) -> None:
        """Let the next round of all periodic work begin now."""
        now = self.monotonic()
        for scope in self._pauses:
            self._deadlines[scope] = min(self._deadlines[scope], now)
        self._reschedule()

    def has_due(self) -> bool:
        """Whether a wait has not ended yet though its deadline has passed: its task will run."""
        now = self.monotonic()
        return any(deadline <= now for deadline in self._deadlines.values())

    def _reschedule(self) -> None:
        for scope, deadline in self._deadlines.items():
            scope.deadline = self._trio_deadline(deadline)

    def _trio_deadline(self, deadline: float) -> float:
        if self._frozen_at is None:
            return deadline - self._ahead_s
        return -math.inf if deadline <= self._frozen_at else math.inf

    # -- the clock

    def now_ms(self) -> int:
        if self._frozen_at is None:
            return self._wall_now_ms() + round(self._wall_ahead_ms)
        return round(self._frozen_wall_ms)

    def monotonic(self) -> float:
        return trio.current_time() + self._ahead_s if self._frozen_at is None else self._frozen_at

    async def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        await self.sleep_until(self.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        with self.move_on_at(deadline):
            await trio.sleep_forever()

    async def pause(self, seconds: float) -> None:
        with self.move_on_after(seconds) as scope:
            self._pauses.add(scope)
            try:
                await trio.sleep_forever()
            finally:
                self._pauses.discard(scope)

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
