"""The machine's time, whatever a test in this process has made of the module `time`.

freezegun and `unittest.mock` replace its functions, also in modules that have imported them; a broker that took them
for real would wait for ever. So these are of another instance of the module. time-machine changes the functions of
every instance, and offers the true ones while it does.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from types import ModuleType


def _new_instance(module: ModuleType) -> ModuleType:
    """Return another instance of a built-in module, which nobody else has."""
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    new = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(new)
    return new


_TIME: Final = _new_instance(time)
perf_counter: Final = _TIME.perf_counter
"""Seconds that never go back; see `time.perf_counter`."""
_OFFSET_S: Final = 10_000.0
"""As with Trio's own clock, whoever takes one of its times for one of `time.perf_counter` sees it at once."""


def wall_ms() -> int:
    """Milliseconds since 1970-01-01 UTC."""
    ns: int = _TIME.time_ns()
    travel = sys.modules.get("time_machine")
    if travel is not None:
        with suppress(ValueError):  # no test travels now
            ns = travel.escape_hatch.time.time_ns()
    return ns // 1_000_000


class MachineClock(trio.abc.Clock):
    """Trio's clock in a process whose `time` a test may change."""

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""

    def current_time(self) -> float:
        """See `trio.abc.Clock`."""
        return _OFFSET_S + float(perf_counter())

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See `trio.abc.Clock`."""
        return deadline - self.current_time()
