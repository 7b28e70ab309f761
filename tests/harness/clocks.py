"""Clocks for tests."""

from __future__ import annotations

import trio

from oncelog.broker.seams.clock import SystemClock


class VirtualWall(SystemClock):
    """Wall time that follows Trio's clock, and is ``start_ms`` now (milliseconds since 1970)."""

    def __init__(self, start_ms: int) -> None:
        self._zero_ms = start_ms - _trio_ms()

    def now_ms(self) -> int:
        return self._zero_ms + _trio_ms()


class FixedClock(SystemClock):
    """Wall time that stands still until a test moves it: ``ms`` since 1970."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


def _trio_ms() -> int:
    try:
        return int(trio.current_time() * 1000)
    except RuntimeError:  # outside of a run
        return 0
