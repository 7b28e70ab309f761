"""Counts what Python executes in a call: as many steps on every machine, where a time is not the same twice."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal


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
