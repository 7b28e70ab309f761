"""The broker's log lines, for tests to read."""

from collections.abc import Iterator

import pytest

from oncelog.broker.logging import logs
from tests.harness.clocks import FixedClock

NOW_MS = 1_700_000_000_123


class Lines:
    """A sink that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lost = 0

    def write(self, line: bytes) -> None:
        self.lines.append(line.decode())

    def take_lost(self) -> int:
        lost, self.lost = self.lost, 0
        return lost


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines that the test logs, from ``info`` on."""
    sink = Lines()
    with logs.logging_to(logs.LogOutput(sink, FixedClock(NOW_MS))):
        yield sink.lines
