"""Why a trial failed, as its requests say."""

from __future__ import annotations

import pytest

from oncelog.broker.control.types import Record
from oncelog.broker.prove.disturbances import Disturbance
from oncelog.broker.prove.judging.clues import silent_members
from oncelog.broker.prove.judging.evidence import Evidence
from oncelog.broker.prove.judging.explain import explain
from oncelog.broker.prove.judging.judge import CHECK, DOUBLED, LOST, OFFSETS, MovedOffset, Problem
from oncelog.broker.prove.judging.outputs import output_of
from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.trials.history import Event
from oncelog.broker.prove.trials.program import ProcessEnd
from oncelog.broker.prove.trials.trial_result import TrialResult


def event(at_s: float, api: str, instance: int = 1, *errors: str) -> Event:
    return Event(int(at_s * 10), at_s, instance, 1, api, 4, "responded", errors, groups=("billing",))


def said(*events: Event, ended: tuple[ProcessEnd, ...] = ()) -> list[str]:
    result = TrialResult((), duration_s=20.0, ends=list(ended))
    return silent_members(result, sorted(events, key=lambda one: one.at_s))


def test_a_member_that_sends_no_heartbeat_is_named() -> None:
    [sentence] = said(event(1, "JoinGroup"), event(2, "SyncGroup"), event(2.5, "Metadata"))
    assert sentence.startswith(
        "instance 1 is a member of billing (SyncGroup, request 20), and sent no heartbeat in the 18 s after that: "
    )


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((event(2, "SyncGroup"), event(19, "Heartbeat")), id="it sends some"),
        pytest.param((event(2, "SyncGroup"), event(3, "LeaveGroup")), id="it has left"),
        pytest.param((event(2, "JoinGroup"),), id="it waits for the others"),
        pytest.param((event(2, "SyncGroup", 1, "UNKNOWN_MEMBER_ID"),), id="it is no member"),
    ],
)
def test_nobody_is_named_without_reason(events: tuple[Event, ...]) -> None:
    assert said(*events) == []


def test_each_instance_counts_by_itself_and_dead_ones_do_not() -> None:
    dead = ProcessEnd(1, 1, -9, 3.0, was_wanted=True, output="")
    assert said(event(2, "SyncGroup"), event(18, "Heartbeat", 2), ended=(dead,)) == []
    [sentence] = said(event(18, "Heartbeat"), event(2, "SyncGroup", 2), event(4, "Heartbeat", 2))
    assert sentence.startswith("instance 2 is a member of billing (Heartbeat, request 40)")


def in_transaction(at_s: float, api: str, *, commits: bool | None = None, offset: int | None = None) -> Event:
    found = event(at_s, api)
    found.transactional_id, found.is_commit = "bills", commits
    if offset is not None:
        found.committed = {("billing", "orders", 0): offset}
    return found


@pytest.mark.parametrize(
    ("end", "is_committed"),
    [
        pytest.param(in_transaction(3, "EndTxn", commits=True), True, id="committed"),
        pytest.param(in_transaction(3, "EndTxn", commits=False), False, id="aborted"),
        pytest.param(in_transaction(3, "InitProducerId"), False, id="the next process aborts it"),
    ],
)
def test_an_offset_is_committed_with_its_transaction(end: Event, is_committed: bool) -> None:
    """What a later transaction does says nothing of it."""
    sent = in_transaction(2, "TxnOffsetCommit", offset=1)
    later = [in_transaction(4, "Produce"), in_transaction(5, "EndTxn", commits=True)]
    plan = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))
    evidence = Evidence(plan, TrialResult(()), [in_transaction(1, "Produce"), sent, end, *later], ())
    assert evidence.commits_past(Record("orders", 0, 0, b"1", None)) == ([sent] if is_committed else [])


ORDERS = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))


def commit(at_s: float, offset: int, *errors: str) -> Event:
    found = event(at_s, "OffsetCommit", 1, *errors)
    found.committed = {("billing", "orders", 0): offset}
    return found


def why(problem: Problem, *events: Event, fired_at: float) -> tuple[tuple[str, ...], str | None]:
    result = TrialResult((), fired_at=[fired_at])
    explanation = explain(ORDERS, result, [problem], events, [commit(1, 1)])
    return explanation.sentences, explanation.mistake


@pytest.mark.parametrize(
    ("lines", "end", "mistake"),
    [
        (("+2|tea",), ": what it had done outside Kafka beyond that, it did again", "two-writes"),
        (("-2|tea",), ": what it had not done of that outside Kafka, nobody does", "offsets-before-work"),
        (("-30", "+40"), "", None),
    ],
)
def test_a_check_is_explained_by_what_was_committed_before(
    lines: tuple[str, ...], end: str, mistake: str | None
) -> None:
    problem = Problem(CHECK, "another output", lines=lines)
    found = why(problem, commit(1, 1), commit(3, 2), fired_at=2)
    before = "when that happened, the program had committed orders-0 up to 1 (request 10)"
    assert found == ((before + end,), mistake)


def test_offsets_are_explained_by_the_last_commit_and_by_one_that_failed() -> None:
    problem = Problem(OFFSETS, "elsewhere", offsets=(MovedOffset("billing", "orders", 0, 1, 2),))
    found = why(problem, commit(1, 1), commit(3, 2, "UNKNOWN_MEMBER_ID"), fired_at=2)
    assert found == (
        (
            "the last commit of orders-0 is request 10, of offset 1",
            "offset 2 was in request 30 (UNKNOWN_MEMBER_ID), and never came again",
        ),
        None,
    )


# -- the mistake that the requests show

INPUT = Record("orders", 0, 4, b"tea", b"7")
TAKEN_OVER = Disturbance("zombie before", {"on": "Produce", "nth": 1, "hold": True})


def produced(at_s: float, *errors: str, transactional: bool = False, run: int = 1) -> Event:
    found = event(at_s, "Produce", 1, *errors)
    found.run = run
    found.transactional_id = "bills" if transactional else None
    record = Record(
        "receipts", 0, -1 if errors else int(at_s), b"paid: tea", b"7", is_transactional=transactional
    )
    found.records = [record]
    return found


def transaction(at_s: float, offset: int, group: str = "billing") -> list[Event]:
    """One that writes the receipt, and commits that offset."""
    sent = in_transaction(at_s + 1, "TxnOffsetCommit")
    sent.committed, sent.member_id = {(group, "orders", 0): offset}, "m"
    return [
        produced(at_s, transactional=True),
        sent,
        in_transaction(at_s + 2, "EndTxn", commits=True),
    ]


def joined() -> Event:
    return event(0.5, "JoinGroup")


def mistake(kind: str, *events: Event, disturbances: tuple[Disturbance, ...] = ()) -> str | None:
    """The mistake behind a receipt that is lost or doubled."""
    result = TrialResult(disturbances, fired_at=[0.0] * len(disturbances), inputs=[INPUT])
    problem = Problem(kind, "a receipt", (output_of(ORDERS, produced(1).records[0]),))
    undisturbed = [produced(1), commit(2, 5)]
    return explain(ORDERS, result, [problem], events, undisturbed).mistake


def test_mistakes_that_double() -> None:
    assert mistake(DOUBLED, produced(1), produced(3, run=2), commit(4, 5)) == "two-writes"
    assert mistake(DOUBLED, joined(), *transaction(1, 4), *transaction(5, 5)) == "offset-of-the-record"
    assert mistake(DOUBLED, joined(), *transaction(1, 5, "another"), *transaction(5, 5)) is None
    assert mistake(DOUBLED, joined(), *transaction(1, 5), *transaction(5, 5)) is None
    assert mistake(DOUBLED, produced(1), produced(3, run=2), disturbances=(TAKEN_OVER,)) == "zombie"


def test_mistakes_that_lose() -> None:
    assert mistake(LOST, commit(1, 5)) == "auto-commit-in-background"
    assert mistake(LOST, produced(1, "INVALID_RECORD"), commit(2, 5)) == "unread-errors"
    assert mistake(LOST, produced(1, "PRODUCER_FENCED")) is None
    assert mistake(LOST, produced(1), commit(2, 5)) is None, "the broker acknowledged it"
    other = transaction(1, 5)
    other[0].records = [Record("receipts", 0, 1, b"paid: milk", b"7", is_transactional=True)]
    assert mistake(LOST, joined(), *other) is None, "another result is in its place"
