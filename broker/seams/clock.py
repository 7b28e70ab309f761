"""Wall time. Waits do not use it: they use Trio's clock, which a test's virtual clock replaces."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the broker learns what time it is."""

    def now_ms(self) -> int:
        """Wall time, in milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's wall clock. It may jump: nothing may be computed from the difference of two readings
    that has to be right."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
