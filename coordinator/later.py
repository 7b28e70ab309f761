"""`Later`: an answer that a step owes, and gives in a step that comes after.

A JoinGroup waits for the other members, a SyncGroup for the leader. The machines stay free of tasks and awaits: they
keep a `Later`, give it to the caller, and resolve it when the time has come. Whoever serves the request waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Later(Generic[T]):
    """Resolved once. ``value`` is only there when ``done``."""

    __slots__ = ("_listener", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T
        self._listener: Callable[[], None] | None = None

    def resolve(self, value: T) -> None:
        """Give the answer, and tell who waits for it."""
        assert not self.done, "an answer is given once"
        self.value = value
        self.done = True
        if self._listener is not None:
            self._listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the answer is there, which may be now."""
        if self.done:
            listener()
        else:
            self._listener = listener
