"""Counts what Python executes in a call: as many steps on every machine, where a time is not the same twice."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import trio


def count_lines(call: Callable[[], object]) -> int:
    """How many lines of Python the call executes."""
    return _count(call, "line")


def count_bytecodes(call: Callable[[], object]) -> int:
    """How many bytecodes the call executes."""
    return _count(call, "opcode")


def _count(call: Callable[[], object], counted: Literal["line", "opcode"]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = counted == "opcode"
        count += event == counted
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    # A collection that falls into the call would be counted: others' callbacks (Hypothesis has one) and finalizers.
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


class LongestTurn(trio.abc.Instrument):
    """Counts the lines of Python in each turn of every task but the one that makes it: `lines` is the most so far, and
    `where` has those of each function in that turn.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._own = trio.lowlevel.current_task()
        self.where: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()
        self._before: Any = None
        trio.lowlevel.add_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        if task is not self._own:
            self._functions.clear()
            self._before = sys.gettrace()
            sys.settrace(self._trace)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        if task is not self._own:
            sys.settrace(self._before)
            lines = self._functions.total()
            if lines > self.lines:
                self.lines, self.where = lines, self._functions.copy()

    def end(self) -> None:
        """Count no more."""
        trio.lowlevel.remove_instrument(self)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self._functions[frame.f_code.co_qualname] += 1
        return self._trace
