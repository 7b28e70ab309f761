"""`oncelog prove --nodes 3`: what happens to leaders, coordinators and nodes loses no record of a right program."""

from __future__ import annotations

import sys

import pytest

import oncelog
from compat_tests.prove.places import PROGRAMS
from compat_tests.prove.zoo import ORDERS
from oncelog.broker.prove.disturbances import KINDS

pytestmark = pytest.mark.slow


def disturbed(program: str, promise: str, kind: str, api: str, nth: int, nodes: int = 3) -> oncelog.Verdict:
    """Disturb a program once, at its n-th request of an API; return the verdict."""
    word, value = KINDS[kind].action
    rule = {"on": api, "listener": "INSTANCE1", "nth": nth, word: value}
    return oncelog.prove(
        [sys.executable, str(PROGRAMS / program)],
        topics={"orders": 1, "receipts": 1},
        inputs={"orders": ORDERS.read_text().splitlines()},
        outputs="receipts",
        promise=promise,  # type: ignore[arg-type]
        nodes=nodes,
        again=[{"kind": kind, "rule": rule}],
    )


@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("leaders move", "Produce"),
        ("leaders move", "OffsetCommit"),
        ("leader is lost", "Produce"),
        ("node dies before", "Produce"),
        ("node dies after", "Produce"),
        ("node dies after", "OffsetCommit"),
    ],
)
def test_a_program_that_waits_for_all_replicas_loses_nothing(kind: str, api: str) -> None:
    verdict = disturbed("at_least_once.py", "at-least-once", kind, api, 3)
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict


@pytest.mark.parametrize("api", ["Produce", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_transaction_survives_a_move_of_its_coordinator(api: str) -> None:
    verdict = disturbed("confluent_transactions.py", "exactly-once", "leaders move", api, 2)
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict


def test_one_node_cannot_take_what_is_for_several() -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match="one node cannot take this disturbance"):
        disturbed("at_least_once.py", "at-least-once", "leaders move", "Produce", 1, nodes=1)
