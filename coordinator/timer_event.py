"""`TimerEvent`: who wants to know what a coordinator did because its time had come: a test that moves time.

    timer_event("member dropped", group="billing", member="c-1", reason="session expired")

What may be told is listed in `oncelog.broker.control.due`.
"""

from __future__ import annotations

from typing import Protocol


class TimerEvent(Protocol):
    """Called after ``what`` was done, with the plain facts ``about`` it."""

    def __call__(self, what: str, **about: str | int) -> None: ...


def nobody(what: str, **about: str | int) -> None:
    """Nobody wants to know."""
