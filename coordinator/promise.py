"""`Promise`: a response that a later step gives.

A JoinGroup waits for the other members, a SyncGroup for the leader. The coordinators have no tasks and await nothing:
a step returns a `Promise` and keeps it, and a later step resolves it. The request's handler waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """Resolved once. ``value`` is set only when ``done``."""

    __slots__ = ("_listener", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T
        self._listener: Callable[[], None] | None = None

    def resolve(self, value: T) -> None:
        """Set the response and call the listener."""
        assert not self.done, "a promise is resolved once"
        self.value = value
        self.done = True
        if self._listener is not None:
            self._listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the promise is resolved: now, if it is already."""
        if self.done:
            listener()
        else:
            self._listener = listener
