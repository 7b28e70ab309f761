"""`BackgroundWork`: what a node's tasks beside requests are doing, and what they did because its time had come.

A test that moves time waits until they are done, and gets a list of the work. There is no other listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class BackgroundWork:
    """Shared by all parts of a node."""

    __slots__ = ("_running", "listener")

    def __init__(self) -> None:
        self.listener: Callable[[str, Mapping[str, str | int]], None] | None = None
        """Called after something was done because its time had come, with what it was and the facts about it."""
        self._running: Counter[str] = Counter()

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Note that a task does ``name`` inside of the block."""
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]

    def names(self) -> list[str]:
        """What is being done just now."""
        return list(self._running)

    def timer_event(self, what: str, **about: str | int) -> None:
        """Tell the listener, if there is one."""
        if self.listener is not None:
            self.listener(what, about)
