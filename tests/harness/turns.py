"""Counts the lines of Python in each turn of a task: how long a task keeps all others waiting, without a clock."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import trio


class Turns(trio.abc.Instrument):
    """Lines of Python that a task executes between two checkpoints. Work in C counts as one line a call.

    ``trio.lowlevel.add_instrument(turns)`` begins to count.
    """

    def __init__(self) -> None:
        self.longest = 0
        """Lines of the longest turn so far."""
        self._lines = 0

    def forget(self) -> None:
        """Begin anew, from the next turn on."""
        self.longest = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._lines = 0
        sys.settrace(self._trace)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.settrace(None)
        self.longest = max(self.longest, self._lines)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self._lines += 1
        return self._trace
