"""`Outlook`: how long a proof takes, and how many of its trials run side by side."""

from __future__ import annotations

from typing import Final

from oncelog.broker.seams.processes import cores

JOBS_PER_CORE: Final = 8
"""More hold too much memory."""
AT_ONCE: Final = 3
"""So many trials on a core may keep it busy by themselves: they seldom all compute at once."""
BUSY: Final = 0.6
"""The part of a core's time that more of them may use, or they would wait for each other."""
TRIAL: Final = 1.7
"""How long a trial takes, measured by an undisturbed run: most have a second start."""
COMPUTED: Final = 1.7
"""How long it computes, measured by that."""
LATE: Final = 1.5
"""A proof says anew how long it takes, if that is so many times as long as it said."""
TELLING: Final = 20
"""So many trials show how long the others take."""


def jobs_for(run_s: float, computed_s: float) -> int:
    """Return how many trials keep the cores busy, if each takes ``run_s`` seconds and computes for ``computed_s``."""
    busy = run_s / max(computed_s, 0.01)
    return max(1, round(cores() * min(JOBS_PER_CORE, max(min(AT_ONCE, busy), BUSY * busy))))


class Outlook:
    """An undisturbed run takes ``run_s`` seconds and computes for ``computed_s``. ``jobs`` trials run side by side;
    None: as many as keep the cores busy.
    """

    def __init__(self, run_s: float, computed_s: float, jobs: int | None) -> None:
        self.jobs = jobs or jobs_for(run_s, computed_s)
        self._trial_s = max(TRIAL * run_s / self.jobs, COMPUTED * computed_s / cores())
        self._foretold_s = 0.0

    def foretell(self, trials: int) -> float:
        """Return how many seconds so many trials take."""
        self._foretold_s = trials * self._trial_s
        return self._foretold_s

    def renewed(self, done: int, trials: int, passed_s: float) -> float | None:
        """Return how many seconds the rest of the trials take, ``done`` of which have ended after ``passed_s``; None:
        as foretold.
        """
        if not TELLING <= done < trials:
            return None
        in_all_s = passed_s * trials / done
        if in_all_s < LATE * self._foretold_s:
            return None
        self._foretold_s = in_all_s
        return in_all_s - passed_s
