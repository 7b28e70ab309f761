"""Running a test in simulated time, with a scheduler whose every choice follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from itertools import count
from typing import Any, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from oncelog.broker.scheduling.slices import SLICE_S

SCHEDULER_SEED = 20_261_121
T = TypeVar("T")


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a plain pytest test of an async one: virtual clock, deterministic order of tasks, no real time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        deterministic(partial(test, *args, **kwargs), SCHEDULER_SEED)

    return run


def simulated_work(steps: int) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """As `simulated`, but work takes time: a slice (`oncelog.broker.scheduling.slices`) is over after so many steps."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            deterministic(partial(test, *args, **kwargs), slice_steps=steps)

        return run

    return decorate


def deterministic(
    main: Callable[[], Awaitable[T]], seed: int = SCHEDULER_SEED, *, slice_steps: int | None = None
) -> T:
    """Run ``main`` so that the same seed gives the same interleaving. Returns what it returns.

    With ``slice_steps`` each look at the clock takes time, so that a slice of work is over after so many steps, each of
    which looks once. Else no work takes any.

    Trio shuffles each batch of runnable tasks with a `random.Random` of its own; its deterministic switch sorts them
    first. Both are private: `test_determinism` fails when a new Trio moves them.
    """
    run: Any = trio_run
    allowed, run._ALLOW_DETERMINISTIC_SCHEDULING = run._ALLOW_DETERMINISTIC_SCHEDULING, True
    state = trio_run._r.getstate()
    trio_run._r.seed(random.Random(seed).random())
    try:
        return trio.run(main, clock=_clock(slice_steps))
    finally:
        trio_run._r.setstate(state)
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed


def _clock(slice_steps: int | None) -> MockClock:
    clock = MockClock(autojump_threshold=0)
    if slice_steps is not None:
        # Half a step less, so that no rounding error decides; a C function, since some tests count lines of Python.
        # The attribute is there for Trio's own tests; without it the tests of turns would fail.
        clock._real_clock = count(0.0, SLICE_S / (slice_steps - 0.5)).__next__
        clock.rate = 1
    return clock
