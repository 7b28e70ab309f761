"""`LogLines`: the latest log lines of a broker, for a failed test's report."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

LINES_KEPT = 1000


class LogLines:
    """Keeps the latest lines in memory, of one node or of several."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int | None, str]] = deque(maxlen=LINES_KEPT)

    def sink(self, node_id: int | None = None) -> LinesOfNode:
        """Return a log sink; ``node_id``: of one of several nodes."""
        return LinesOfNode(self._lines, node_id)

    def latest(self, node_id: int | None = None) -> list[str]:
        """Return the lines, newest last; with ``node_id``, only that node's."""
        return [line for node, line in self._lines if node_id in (None, node)]


class LinesOfNode(NamedTuple):
    """A log sink that keeps the lines of one node."""

    lines: deque[tuple[int | None, str]]
    node_id: int | None

    def write(self, line: bytes) -> None:
        self.lines.append((self.node_id, line.decode().rstrip("\n")))

    def take_lost(self) -> int:
        return 0
