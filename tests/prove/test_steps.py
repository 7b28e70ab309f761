"""The steps of a program, and the classes of disturbances at them."""

from __future__ import annotations

from typing import Any

from oncelog.broker.faults.rule import parse_rule
from oncelog.broker.prove.disturbances import KINDS, RETRIABLE, Disturbance, Then
from oncelog.broker.prove.steps import counter_rules, picks, planned
from oncelog.broker.prove.trials.history import Event


def event(number: int, api: str, writes: int, writes_after: int, **more: Any) -> Event:
    return Event(
        number, number / 100, 1, 1, api, 1, "responded", (), writes=writes, writes_after=writes_after, **more
    )


def loop_of(orders: int) -> list[Event]:
    """An undisturbed run that writes a record and commits an offset for each order."""
    events = []
    for order in range(orders):
        begin = order * 2
        events.append(event(begin, "Produce", begin, begin + 1, topics=("receipts",)))
        events.append(event(begin + 1, "OffsetCommit", begin + 1, begin + 2, groups=("billing",)))
    return events


def test_of_many_steps_of_a_kind_four_are_tried_a_middle_one_first() -> None:
    assert picks(10) == [5, 1, 10, 2]
    assert picks(3) == [2, 1, 3]
    assert picks(1) == [1]
    assert picks(0) == []


def test_one_of_each_kind_comes_before_the_second_of_any() -> None:
    found = planned(loop_of(10), (), is_checked=False)
    lost = [one.rule["nth"] for one in found if one.kind == "lose response"]
    assert lost == [5, 5, 1, 1, 10, 10, 2, 2]


def test_a_kill_that_leaves_the_same_state_is_tried_once() -> None:
    """After the Produce is before the OffsetCommit, and after that is before the next Produce."""
    found = planned(loop_of(2), (), is_checked=False)
    states = [
        (one.kind, one.rule["on"], one.rule["nth"]) for one in found if KINDS[one.kind].then is Then.KILL
    ]
    assert len(states) == 5  # no write, one, two, three, four
    assert len(planned(loop_of(2), (), is_checked=True)) > len(found)


def test_a_kill_at_another_state_of_the_programs_folder_is_another_one() -> None:
    events = loop_of(1)
    events[1].folder = 7
    kills = [one for one in planned(events, (), is_checked=False) if KINDS[one.kind].then is Then.KILL]
    assert len(kills) == 4


def test_the_topic_tells_a_programs_writes_apart() -> None:
    events = [event(1, "Produce", 0, 1, topics=("receipts",)), event(2, "Produce", 1, 2, topics=("audit",))]
    steps = {(one.rule["topic"], one.rule["nth"]) for one in planned(events, (), is_checked=False)}
    assert steps == {("receipts", 1), ("audit", 1)}


def test_sigterm_and_a_rebalance_come_while_records_are_in_hand() -> None:
    events = [event(1, "Fetch", 0, 0), event(2, "Fetch", 0, 0, brought_records=True), event(3, "Fetch", 0, 0)]
    assert [(one.kind, one.rule["nth"]) for one in planned(events, (), is_checked=False)] == [
        ("terminate", 2),
        ("join", 2),
    ]


def test_every_rule_is_one_that_the_broker_takes() -> None:
    events = [event(number, api, number, number + 1, topics=("t",)) for number, api in enumerate(RETRIABLE)]
    counts = [(rule, 3) for rule in counter_rules(["t"])]
    found = planned(events, counts, is_checked=True)
    assert {one.kind for one in found} == KINDS.keys()
    for one in found:
        parse_rule(one.rule)
        assert Disturbance.of_data(one.to_data()) == one
        assert "{}" not in str(one)
