"""`DeniedLines`: what a client wanted and may not do is told with a few names, however much it asks for."""

from __future__ import annotations

import trio
import trio.testing

from oncelog.broker.logging.line_limiter import REPEATED_LINE_INTERVAL_MS
from oncelog.broker.requests.authorization import DESCRIBE, READ, TOPIC_RESOURCE
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.security.denied_lines import DENIED_NAMES_MAX, NAME_CHARS_SHOWN, DeniedLines
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
        shown = ", ".join([*many[DENIED_NAMES_MAX : 2 * DENIED_NAMES_MAX - 1], "u"])
        assert await said.deny("u") == [
            f"'topic {shown}' host=127.0.0.1 left_out={99_000 - DENIED_NAMES_MAX + 1}"
        ]

    trio.run(run)


def test_what_is_denied_in_the_minute_is_in_the_next_line(lines: list[str]) -> None:
    """So a reader finds each missing right, also of a client that asks for one after another."""

    async def run() -> None:
        said = Said(lines)
        assert await said.deny("a") == ["'topic a' host=127.0.0.1"]
        for name in ("a", "b", "c", "b"):
            assert await said.deny(name) == []
        assert await said.deny("a", operation=READ) == ["'topic a' host=127.0.0.1"]
        said.now_ms += REPEATED_LINE_INTERVAL_MS - 1
        assert await said.deny("d") == []
        said.now_ms += 1
        assert await said.deny("a") == ["'topic b, c, d, a' host=127.0.0.1 left_out=2"]
        said.now_ms += REPEATED_LINE_INTERVAL_MS
        assert await said.deny("a") == ["'topic a' host=127.0.0.1"]
        said.now_ms -= 24 * 60 * 60 * 1000  # a clock that is set back does not silence
        assert await said.deny("a") == ["'topic a' host=127.0.0.1"]

    trio.run(run)


def test_names_one_by_one_are_one_line_a_minute(lines: list[str]) -> None:
    async def run() -> None:
        said = Said(lines)
        told = []
        for number in range(120):
            told += await said.deny(f"t{number}")
            said.now_ms += 1000
        later = ", ".join(f"t{number}" for number in (*range(1, DENIED_NAMES_MAX), 60))
        assert told == [
            "'topic t0' host=127.0.0.1",
            f"'topic {later}' host=127.0.0.1 left_out={60 - DENIED_NAMES_MAX}",
        ]

    trio.run(run)


def test_a_long_name_is_cut(lines: list[str]) -> None:
    async def run() -> None:
        said = Said(lines)
        [line] = await said.deny("x" * 30_000, "x" * 30_001)
        assert line == f"'topic {'x' * NAME_CHARS_SHOWN}' host=127.0.0.1 left_out=1"

    trio.run(run)
