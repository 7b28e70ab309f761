"""`LogLines`: the latest log lines of a broker, for a failed test's report."""

from __future__ import annotations

from collections import deque

LINES_KEPT = 1000


class LogLines:
    """A log sink that keeps the latest lines in memory."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    def write(self, line: bytes) -> None:
        self._lines.append(line.decode().rstrip("\n"))

    def take_lost(self) -> int:
        return 0

    def latest(self) -> list[str]:
        """Return the lines, newest last."""
        return list(self._lines)
