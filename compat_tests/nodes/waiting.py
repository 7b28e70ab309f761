"""Waiting for what a cluster says of itself."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.common.batches import WAIT_MS, now_ms

ASKED_AGAIN_AFTER_S = 0.05

T = TypeVar("T")


def wait_until(ask: Callable[[], T], done: Callable[[T], bool], what: str = "") -> T:
    """Ask until the answer is what is waited for, and return it. Raises AssertionError with the last answer.

    An `ask` that fails with OSError, as when a node has gone, is made again.
    """
    deadline = now_ms() + WAIT_MS
    while True:
        shown: object
        try:
            if done(found := ask()):
                return found
            shown = found
        except OSError as error:
            shown = error
        assert now_ms() < deadline, f"no sign of {what or 'what was waited for'}: {shown}"
        time.sleep(ASKED_AGAIN_AFTER_S)
