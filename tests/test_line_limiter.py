"""`LineLimiter` writes one line per cause and minute, and the next line says how many were left out."""

from __future__ import annotations

from oncelog.broker.logging.line_limiter import REPEATED_LINE_INTERVAL_MS, REPEATED_LINES_MAX, LineLimiter
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.seams.clock import MovableClock


class Said:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.limiter = LineLimiter(MovableClock(lambda: self.now_ms))
        self.written: list[tuple[str, dict[str, object]]] = []

    def say(self, text: str = "disk full", partition: int = 0, **details: object) -> int:
        """How many lines were written so far."""
        self.limiter.write(self._take, text, {"partition": partition}, **details)
        return len(self.written)

    def _take(self, text: str, **fields: object) -> None:
        self.written.append((text, fields))


def test_one_a_minute_with_a_count() -> None:
    said = Said()
    assert said.say(error="first") == 1
    assert [said.say(error="more") for _ in range(5)] == [1] * 5
    said.now_ms += REPEATED_LINE_INTERVAL_MS - 1
    assert said.say(error="more") == 1
    said.now_ms += 1
    assert said.say(error="second") == 2
    said.now_ms += REPEATED_LINE_INTERVAL_MS
    assert said.say(error="third") == 3
    assert said.written == [
        ("disk full", {"partition": 0, "error": "first"}),
        ("disk full", {"partition": 0, "error": "second", "left_out": 6}),
        ("disk full", {"partition": 0, "error": "third"}),
    ]


def test_another_cause_is_written_at_once() -> None:
    said = Said()
    assert (said.say(), said.say(partition=1), said.say("no room to compact"), said.say()) == (1, 2, 3, 3)


def test_a_reason_is_the_same_cause_whatever_a_peer_has_sent() -> None:
    said = Said()
    for name in ("a", "{}", "{0}"):
        said.limiter.write(
            said._take, "closed", {"reason": Reason("no {}: {}", "topic", name).after("sorry, ")}
        )
    said.limiter.write(said._take, "closed", {"reason": Reason("no {}", "topic: {}")})
    said.limiter.write(said._take, "closed", {"reason": "no {}: {}"})
    found = [fields["reason"] for _, fields in said.written]
    assert found == ["sorry, no topic: a", "no topic: {}", "no {}: {}"]


def test_a_clock_that_is_set_back_does_not_silence() -> None:
    said = Said()
    assert said.say() == 1
    said.now_ms -= 24 * 60 * 60 * 1000
    assert (said.say(), said.say()) == (2, 2)


def test_a_new_cause_replaces_the_one_with_the_oldest_line() -> None:
    said = Said()
    for partition in range(REPEATED_LINES_MAX):
        said.say(partition=partition)
    said.now_ms += REPEATED_LINE_INTERVAL_MS
    said.say(partition=0)
    said.written.clear()
    assert said.say(partition=-1) == 1  # in the place of 1: its line is the oldest now
    said.now_ms -= REPEATED_LINE_INTERVAL_MS
    said.now_ms += 1
    assert (said.say(partition=2), said.say(partition=1)) == (1, 2)
