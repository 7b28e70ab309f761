"""Deadlines: every action is called once, at its time, whatever is postponed or cancelled in between."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from oncelog.coordinator.deadlines import NEVER, STALE_ENTRIES_MAX, Deadlines


class Timeline:
    """Deadlines with a manual clock. ``done``: (milliseconds, key) of each action called."""

    def __init__(self) -> None:
        self.now = 0.0
        self.earlier = 0
        self.done: list[tuple[int, object]] = []
        self.deadlines = Deadlines(lambda: self.now, self._on_earlier)

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    def _on_earlier(self) -> None:
        self.earlier += 1

    def set(self, key: object, delay_ms: float, early_ms: float = 0) -> None:
        self.deadlines.set(key, delay_ms, lambda: self.done.append((self.now_ms, key)), early_ms=early_ms)

    def advance(self, to_ms: int) -> None:
        """Sleep until the next deadline, as the coordinator's task does."""
        while self.deadlines.next_at() * 1000 <= to_ms + 0.5:
            self.now = max(self.now, self.deadlines.next_at())
            self.deadlines.run_due()
        self.now = max(self.now, to_ms / 1000)


def test_actions_run_in_order_and_once() -> None:
    line = Timeline()
    for key, delay_ms in (("b", 20), ("a", 10), ("c", 20)):
        line.set(key, delay_ms)
    assert (len(line.deadlines), line.deadlines.next_at()) == (3, 0.01)
    line.advance(100)
    assert line.done == [(10, "a"), (20, "b"), (20, "c")]
    assert (len(line.deadlines), line.deadlines.next_at()) == (0, NEVER)


def test_postponed_advanced_and_cancelled() -> None:
    line = Timeline()
    line.set("on", 10)
    line.set("on", 30)
    line.set("sooner", 30)
    line.set("sooner", 5)
    line.set("gone", 7)
    line.deadlines.cancel("gone")
    line.deadlines.cancel("never there")
    assert "on" in line.deadlines
    assert "gone" not in line.deadlines
    line.advance(100)
    assert line.done == [(5, "sooner"), (30, "on")]


def test_the_sleeper_is_woken_only_for_earlier_deadlines() -> None:
    line = Timeline()
    line.set("a", 50)
    assert line.earlier == 1
    line.set("b", 60)
    line.set("a", 70)
    assert line.earlier == 1
    line.set("c", 10)
    assert line.earlier == 2


def test_an_action_may_set_and_cancel() -> None:
    line = Timeline()
    line.deadlines.set("again", 10, lambda: line.set("again", 10))
    line.deadlines.set("cancels", 15, lambda: line.deadlines.cancel("b"))
    line.set("b", 15)
    line.advance(40)
    assert line.done == [(20, "again")]


def test_cancelled_deadlines_take_no_memory() -> None:
    """Thousands of members with sessions of half an hour join and leave."""
    line = Timeline()
    line.set("stays", 1_800_000)
    for number in range(10 * STALE_ENTRIES_MAX):
        line.set(number, 1_800_000 - number % 7)
        line.deadlines.cancel(number)
    assert len(line.deadlines) == 1
    assert len(line.deadlines._queue) <= STALE_ENTRIES_MAX + 3
    line.advance(1_800_000)
    assert line.done == [(1_800_000, "stays")]


def fail() -> None:
    raise ZeroDivisionError


def test_an_action_that_fails_costs_the_others_nothing() -> None:
    line = Timeline()
    line.deadlines.set("bad", 10, fail)
    line.set("good", 10)
    line.now = 0.01
    with pytest.raises(ZeroDivisionError):
        line.deadlines.run_due()
    line.deadlines.run_due()
    assert line.done == [(10, "good")]


@pytest.mark.parametrize("seed", range(30))
def test_against_a_plain_model(seed: int) -> None:
    rng = random.Random(seed)
    line = Timeline()
    model: dict[int, int] = {}
    expected: list[tuple[int, object]] = []
    for _ in range(400):
        key = rng.randrange(12)
        match rng.randrange(4):
            case 0 | 1:
                delay_ms = rng.randrange(1, 60)
                line.set(key, delay_ms)
                model[key] = line.now_ms + delay_ms
            case 2:
                line.deadlines.cancel(key)
                model.pop(key, None)
            case _:
                to_ms = line.now_ms + rng.randrange(40)
                line.advance(to_ms)
                due = sorted((at, key) for key, at in model.items() if at <= to_ms)
                expected += due
                model = {key: at for key, at in model.items() if at > to_ms}
                assert sorted(line.done) == sorted(expected), f"seed {seed}"
        assert len(line.deadlines) == len(model)
        assert line.deadlines.next_at() * 1000 <= min(model.values(), default=NEVER) + 0.5
    assert [at for at, _ in line.done] == sorted(at for at, _ in line.done)


# --- what is due of one owner


EIGHTH_MS = 125
"""A time that floats add up exactly."""


class Owned(NamedTuple):
    owner: str
    number: int


def run_due_of(line: Timeline, owner: str) -> None:
    line.deadlines.collect_due()
    while (due := line.deadlines.take_due_of(owner)) is not None:
        due[1]()


def test_what_is_due_of_an_owner_comes_before_the_rest() -> None:
    line = Timeline()
    for owner, number, delay_ms in (("a", 1, 10), ("b", 1, 20), ("a", 2, 30), ("b", 2, 90)):
        line.set(Owned(owner, number), delay_ms)
    line.now = 0.05
    run_due_of(line, "b")
    assert line.done == [(50, ("b", 1))]
    run_due_of(line, "b")
    run_due_of(line, "c")
    line.advance(100)
    assert line.done == [(50, ("b", 1)), (50, ("a", 1)), (50, ("a", 2)), (90, ("b", 2))]


def test_an_owners_action_may_cancel_and_set_others() -> None:
    """What it sets comes later, even if that is due at once."""
    line = Timeline()

    def act() -> None:
        line.deadlines.cancel(Owned("a", 2))
        line.set(Owned("a", 3), 100)
        line.set(Owned("a", 1), 0)

    line.deadlines.set(Owned("a", 1), 10, act)
    line.set(Owned("a", 2), 20)
    line.set(Owned("a", 3), 20)
    line.now = 0.05
    run_due_of(line, "a")
    assert line.done == []
    line.advance(200)
    assert line.done == [(50, ("a", 1)), (150, ("a", 3))]


@pytest.mark.parametrize("seed", range(30))
def test_owners_against_a_plain_model(seed: int) -> None:
    rng = random.Random(seed)
    line = Timeline()
    model: dict[Owned, int] = {}
    for _ in range(400):
        key = Owned(rng.choice("abc"), rng.randrange(5))
        line.done.clear()
        expected: list[object] = []
        match rng.randrange(5):
            case 0 | 1:
                delay_ms = EIGHTH_MS * rng.randrange(12)
                line.set(key, delay_ms)
                model[key] = line.now_ms + delay_ms
            case 2:
                line.deadlines.cancel(key)
                model.pop(key, None)
            case 3:
                line.now += EIGHTH_MS * rng.randrange(8) / 1000
                run_due_of(line, key.owner)
                expected = [one for one, at in model.items() if one.owner == key.owner and at <= line.now_ms]
            case _:
                line.deadlines.run_due()
                expected = [one for one, at in model.items() if at <= line.now_ms]
        found = [one for _, one in line.done]
        assert sorted(map(str, found)) == sorted(map(str, expected)), f"seed {seed}"
        for one in found:
            del model[one]  # type: ignore[arg-type]
        assert len(line.deadlines) == len(model)
        assert line.deadlines.next_at() * 1000 <= min(model.values(), default=NEVER) + 0.5


# --- moving time


def test_a_periodic_check_may_come_due_earlier() -> None:
    line = Timeline()
    line.set("session", 50)
    line.set("check", 100, early_ms=70)
    line.set("sweep", 300, early_ms=300)
    assert line.deadlines.next_possible() == 0.03
    line.advance(20)
    line.deadlines.hasten_possible(since=0)
    line.advance(20)
    assert line.done == []
    line.now = 0.03
    line.deadlines.hasten_possible(since=0.02)
    line.advance(30)
    assert line.done == [(30, "check")]
    assert line.deadlines.next_possible() == 0.05
    assert line.deadlines.next_possible(but={"session"}) == NEVER
    line.deadlines.hasten_possible()
    line.advance(30)
    assert line.done == [(30, "check"), (30, "sweep")]
    line.advance(50)
    assert line.done[2:] == [(50, "session")]
    line.advance(400)
    assert (len(line.done), line.deadlines.next_at()) == (3, NEVER)


def test_a_check_that_is_set_anew_is_early_by_the_new_time() -> None:
    line = Timeline()
    line.set("check", 100, early_ms=100)
    line.set("check", 200, early_ms=10)
    assert line.deadlines.next_possible() == pytest.approx(0.19)
    line.deadlines.hasten_possible()
    line.advance(199)
    assert line.done == []
    line.advance(200)
    assert line.done == [(200, "check")]


def test_postponed_and_hastened_deadlines() -> None:
    line = Timeline()
    for key, delay_ms in (("a", 10), ("b", 10), ("c", 30)):
        line.set(key, delay_ms)
    line.deadlines.postpone({"a"}, 0.005)
    earlier = line.earlier
    line.deadlines.hasten("c")
    assert line.earlier == earlier + 1
    assert set(line.deadlines) == {"a", "b", "c"}
    line.advance(40)
    assert line.done == [(0, "c"), (10, "b"), (15, "a")]
    with pytest.raises(KeyError):
        line.deadlines.hasten("c")


def test_a_deadline_hastened_and_set_again_comes_due_at_its_new_time() -> None:
    line = Timeline()
    line.set("a", 30)
    line.deadlines.hasten("a")
    line.set("a", 40)
    line.advance(100)
    assert line.done == [(40, "a")]
    assert line.deadlines.next_at() == NEVER
