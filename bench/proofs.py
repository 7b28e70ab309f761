"""A proof: what a trial costs beside the program, and how long 200 trials of a program of ten records take.

Each is measured by a child process: ``python -m bench.proofs FEW MANY`` prints its figures.
"""

from __future__ import annotations

import json
import pathlib
import resource
import subprocess
import sys
import time

import oncelog
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.servers import Kind

TRIAL = Row("a trial of a proof: CPU beside the program's", "ms", ours_at_most(30))
PROOF = Row("a proof of 200 trials", "s", ours_at_most(120))
PROGRAM = (
    pathlib.Path(__file__).parents[1] / "compat_tests" / "prove" / "programs" / "confluent_transactions.py"
)
RECORDS = [(f"table {number % 3}", f"order {number}") for number in range(10)]
FEW, MANY = 10, 200


def measure(trials: int) -> tuple[float, float]:
    """CPU of this process, and real time, of a proof of so many trials; both in seconds."""
    began, before = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    verdict = oncelog.prove(
        [sys.executable, str(PROGRAM)],
        topics=["orders", "receipts"],
        inputs={"orders": RECORDS},
        outputs="receipts",
        trials=trials,
    )
    assert verdict.trials == trials, verdict.basis
    assert verdict.word == "exactly once", verdict.basis
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return cpu_s, time.perf_counter() - before


def _measure(harness: Harness, kind: Kind) -> None:
    if kind is not Kind.OURS:
        return
    many = harness.count(MANY)
    command = [sys.executable, "-m", "bench.proofs", str(FEW), str(FEW + many)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
    for name, figure in json.loads(run.stdout.splitlines()[-1]).items():
        harness.record(name, kind, figure)


EXPERIMENTS = (Experiment("proofs", (TRIAL, PROOF), _measure, rounds_max=1),)

if __name__ == "__main__":
    few, many = int(sys.argv[1]), int(sys.argv[2])
    cpu_few, _ = measure(few)
    cpu_many, seconds = measure(many)
    print(
        json.dumps({TRIAL.name: (cpu_many - cpu_few) / (many - few) * 1000, PROOF.name: seconds * 200 / many})
    )
