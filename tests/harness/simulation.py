"""Running a test in simulated time, with a scheduler whose every choice follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

SCHEDULER_SEED = 20_261_121
T = TypeVar("T")


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a plain pytest test of an async one: virtual clock, deterministic order of tasks, no real time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        deterministic(partial(test, *args, **kwargs), SCHEDULER_SEED)

    return run


def deterministic(main: Callable[[], Awaitable[T]], seed: int = SCHEDULER_SEED) -> T:
    """Run ``main`` so that the same seed gives the same interleaving. Returns what it returns.

    Trio shuffles each batch of runnable tasks with a `random.Random` of its own; its deterministic switch sorts them
    first. Both are private: `test_determinism` fails when a new Trio moves them.
    """
    run: Any = trio_run
    allowed, run._ALLOW_DETERMINISTIC_SCHEDULING = run._ALLOW_DETERMINISTIC_SCHEDULING, True
    state = trio_run._r.getstate()
    trio_run._r.seed(random.Random(seed).random())
    try:
        return trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        trio_run._r.setstate(state)
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed
