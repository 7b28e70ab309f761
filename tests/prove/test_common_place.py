"""What trials have in common, such as a database: each has a name of its own there, or one runs at a time."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

import oncelog
from oncelog.broker.prove.plan import ProofPlan

# Writes the orders into a file of its trial, in a folder that all trials have in common.
PROGRAM = """
import os, sys
from kafka import KafkaConsumer

folder, trial = sys.argv[1:]
assert trial == os.environ["ONCELOG_PROVE_TRIAL"]
consumer = KafkaConsumer(
    "orders", bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"], group_id="billing", session_timeout_ms=6000,
    auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100,
)
for order in consumer:
    with open(f"{folder}/{trial}", "a") as file:
        file.write(order.value.decode() + "\\n")
    consumer.commit()
"""
KILLED = [
    {
        "kind": "kill before",
        "rule": {"on": "OffsetCommit", "listener": "INSTANCE1", "nth": 1, "drop_request": "close"},
    }
]


def prove(folder: pathlib.Path, check: str) -> oncelog.Verdict:
    (folder / "app.py").write_text(PROGRAM)
    return oncelog.prove(
        [sys.executable, str(folder / "app.py"), str(folder), "{trial}"],
        topics=["orders"],
        inputs={"orders": ["tea", "cake"]},
        promise="at-least-once",
        check=check,
        again=KILLED,
    )


@pytest.mark.slow
def test_each_trial_has_a_name(tmp_path: pathlib.Path) -> None:
    verdict = prove(tmp_path, f"cat {tmp_path}/{{trial}}")
    assert (verdict.word, verdict.promise, verdict.notes) == ("at least once", "kept", []), verdict
    assert [one.name for one in sorted(tmp_path.glob("trial*"))] == ["trial1", "trial2", "trial3", "trial4"]


@pytest.mark.slow
def test_without_a_name_one_trial_runs_at_a_time(tmp_path: pathlib.Path) -> None:
    [note] = prove(tmp_path, f"ls {tmp_path}/app.py").notes
    assert note.startswith("one trial runs at a time: ")


@pytest.mark.parametrize(
    ("commands", "is_in_common"),
    [
        ({}, False),
        ({"check": "sqlite3 {dir}/shop.db 'select * from paid'"}, False),
        ({"check": 'cat "$ONCELOG_PROVE_DIR/paid"', "reset": "createdb {trial}"}, False),
        ({"check": "psql shop -c 'select * from paid'"}, True),
        ({"check": "psql {trial} -c 'select * from paid'", "reset": "psql shop -c 'delete from paid'"}, True),
    ],
)
def test_what_is_in_common(commands: dict[str, Any], is_in_common: bool) -> None:
    plan = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",), **commands)
    assert plan.is_checked_in_common is is_in_common
