"""`HeldBytes`: memory that all connections of a server hold together for peers that may never go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of responses, of all connections together, whose clients do not read them."""
LOGIN_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of incomplete frames, of all connections together, whose clients have not logged in."""


class HeldBytes:
    """At most ``limit`` bytes. Where more are held, the connection with the most of them is closed, the oldest of equal
    ones. If connections waited for room instead, a few peers could stop all others. ``what`` names the bytes in the
    reason.
    """

    __slots__ = ("_holders", "_what", "limit", "used")

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.used = 0
        self._what = what
        self._holders: dict[Callable[[str], None], int] = {}
        """``close`` of a connection -> the bytes that it holds; the oldest connection first."""

    def hold(self, close: Callable[[str], None], size: int) -> None:
        """Count ``size`` more bytes of the connection that ``close`` closes. It may be closed at once."""
        self._holders[close] = self._holders.get(close, 0) + size
        self.used += size
        while self.used > self.limit and self._holders:
            most = max(self._holders, key=self._holders.__getitem__)
            size = self.release(most)
            most(f"{size} bytes of {self._what}; the limit is {self.limit} for all connections together")

    def release(self, close: Callable[[str], None]) -> int:
        """Forget the bytes of that connection; return how many they were."""
        size = self._holders.pop(close, 0)
        self.used -= size
        return size
