"""`DeniedLines`: what a client wanted and may not do is told with a few names, however much it asks for."""

from __future__ import annotations

import trio
import trio.testing

from oncelog.broker.authorization import DESCRIBE, READ, TOPIC_RESOURCE
from oncelog.broker.line_limiter import REPEATED_LINE_INTERVAL_MS
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.security.denied_lines import DENIED_NAMES_MAX, DeniedLines
from tests.harness.log_lines import lines

__all__ = ["lines"]


class Asker:
    principal = "User:app"
    host = "127.0.0.1"


class Said:
    def __init__(self, lines: list[str]) -> None:
        self.now_ms = 1_700_000_000_000
        self._denied = DeniedLines(MovableClock(lambda: self.now_ms))
        self._lines = lines

    async def deny(self, *names: str, operation: int = DESCRIBE) -> list[str]:
        """Deny these together; return the new lines, from the resource on."""
        for name in names:
            self._denied.note(Asker(), operation, TOPIC_RESOURCE, name)
        await trio.testing.wait_all_tasks_blocked()
        said = [line.partition(" resource=")[2].rstrip() for line in self._lines]
        self._lines.clear()
        return said


def test_a_request_for_many_names_is_one_line(lines: list[str]) -> None:
    async def run() -> None:
        said = Said(lines)
        many = [f"t{number}" for number in range(99_000)]
        shown = ", ".join(many[:DENIED_NAMES_MAX])
        assert await said.deny(*many) == [
            f"'topic {shown}' host=127.0.0.1 left_out={99_000 - DENIED_NAMES_MAX}"
        ]
        assert await said.deny(*many) == []
        said.now_ms += REPEATED_LINE_INTERVAL_MS
        assert await said.deny("u") == ["'topic u' host=127.0.0.1 left_out=99000"]

    trio.run(run)


def test_a_reader_finds_each_missing_right(lines: list[str]) -> None:
    """Another name, or another operation, is told at once; the same one is not told again."""

    async def run() -> None:
        said = Said(lines)
        assert await said.deny("a") == ["'topic a' host=127.0.0.1"]
        assert await said.deny("a") == []
        assert await said.deny("b") == ["'topic b' host=127.0.0.1 left_out=1"]
        assert await said.deny("a", operation=READ) == ["'topic a' host=127.0.0.1"]
        said.now_ms -= 24 * 60 * 60 * 1000  # a clock that is set back does not silence
        assert await said.deny("a") == ["'topic a' host=127.0.0.1"]

    trio.run(run)
