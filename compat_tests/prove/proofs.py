"""Runs `oncelog prove` for a program of the zoo, and compares what it says with what is known."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from compat_tests.prove.places import HERE, PROGRAMS
from compat_tests.prove.zoo import Failure, Member

REPRODUCTIONS = HERE / "reproductions"
PROOF_TIMEOUT_S = 3600
KEPT, BROKEN, INVALID = 0, 1, 2


class Proof:
    """What a run of `oncelog prove` said."""

    def __init__(self, command: list[str]) -> None:
        self.run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROOF_TIMEOUT_S,
            check=False,
            env={**os.environ, "ZOO_PYTHON": sys.executable, "ZOO_PROGRAMS": str(PROGRAMS)},
        )
        assert self.run.returncode != INVALID, f"{self.run.stderr}\n{command}"
        self.verdict: dict[str, Any] = json.loads(self.run.stdout)

    @property
    def failures(self) -> set[Failure]:
        """What failed."""
        return {failure for finding in self.verdict["findings"] for failure in failures_of(finding)}

    def __repr__(self) -> str:
        told = {name: self.verdict[name] for name in ("verdict", "reason", "basis", "unsteady", "not_met")}
        found = [(one["finding"], one["step"], one["why"]) for one in self.verdict["findings"]]
        return f"{json.dumps(told, indent=1)}\n{json.dumps(found, indent=1)}\n{self.run.stderr}"


def prove(member: Member, folder: pathlib.Path, *options: str) -> Proof:
    """Prove a program, in `folder`. Raises RealPartMissing."""
    return Proof(member.proof(folder, "--json", "--report", str(folder / "report"), *options))


def again(member: Member, folder: pathlib.Path, reproduction: pathlib.Path) -> Proof:
    """Repeat a trial of a program. Raises RealPartMissing."""
    words = [sys.executable, "-m", "oncelog", "prove", "--json"]
    return Proof([*words, "--again", str(reproduction), "--", *member.command(folder)])


def failures_of(finding: dict[str, Any]) -> set[Failure]:
    """What failed in one trial, or in an undisturbed run."""
    disturbance = api = ""
    if finding["disturbances"]:
        [disturbed] = finding["disturbances"]
        rule = disturbed["rule"]
        disturbance, api = disturbed["kind"], rule.get("on") or str(rule["crash_at"]).partition(" ")[2]
    return {Failure(disturbance, api, one["kind"], finding["mistake"]) for one in finding["problems"]}


def reproduction(member: Member, number: int) -> pathlib.Path:
    """Where the trial with the failure of that number is stored."""
    return REPRODUCTIONS / f"{member.name}{'' if number == 0 else f'-{number + 1}'}.json"


def store(member: Member, proof: Proof) -> list[Failure]:
    """Store what repeats the failures that the table has; returns those that the proof did not meet."""
    missed = []
    for number, failure in enumerate(member.failures):
        found = [one for one in proof.verdict["findings"] if failure in failures_of(one)]
        if not found:
            missed.append(failure)
            continue
        kept = {name: found[0][name] for name in ("format", "oncelog", "finding", "step", "disturbances")}
        kept["plan"] = {**found[0]["plan"], "command": ["program"]}
        reproduction(member, number).write_text(json.dumps(kept, indent=1) + "\n")
    return missed
