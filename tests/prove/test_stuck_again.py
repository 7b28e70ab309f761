"""A program that stands still after the same error, whichever request gets it: that costs three time limits once."""

from __future__ import annotations

import pathlib
import sys

import pytest
import trio

from oncelog.broker.prove.disturbances import Disturbance
from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.prover import STUCK_REPEATS, Budget, Prover

pytestmark = pytest.mark.slow

# Needs a second to start. Stands still when a receipt is refused for good, and leaves a line in the file that is its
# argument.
PROGRAM = """
import os, pathlib, sys, time
from confluent_kafka import Producer

time.sleep(1)

def delivered(error, receipt):
    if error is not None and error.name() == "INVALID_RECORD":
        with pathlib.Path(sys.argv[1]).open("a") as file:
            print(receipt.value().decode(), file=file)
        time.sleep(600)

producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
for number in range(5):
    producer.produce("receipts", str(number), on_delivery=delivered)
    producer.flush()
"""


def test_it_is_repeated_for_the_first_request_alone(tmp_path: pathlib.Path) -> None:
    app, stood_still = tmp_path / "app.py", tmp_path / "errors"
    app.write_text(PROGRAM)
    plan = ProofPlan(
        (sys.executable, str(app), str(stood_still)),
        {"orders": 1, "receipts": 1},
        {"orders": ({"value": "tea"},)},
        ("receipts",),
        until_exit=True,
        nodes=1,
        timeout_s=3,
    )
    step = {"on": "Produce", "listener": "INSTANCE1", "topic": "receipts", "error": "INVALID_RECORD"}
    first = [Disturbance("refuse for good", {**step, "nth": nth}) for nth in (1, 2, 3, 5)]
    prover = Prover(
        plan, lambda progress: None, budget=Budget(trials=4), jobs=1, first=[(one,) for one in first]
    )
    [finding] = trio.run(prover.run).findings
    assert (finding.kinds, finding.disturbances, finding.same) == (("stuck",), (first[0],), 4)
    seen = stood_still.read_text().split()
    assert [seen.count(str(number)) for number in range(5)] == [1 + STUCK_REPEATS, 1, 1, 0, 1]
