"""Runs `oncelog prove` for a program of the zoo, and compares what it says with what is known."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from compat_tests.prove.places import HERE
from compat_tests.prove.zoo import Failure, Member

REPRODUCTIONS = HERE / "reproductions"
PROOF_TIMEOUT_S = 3600
KEPT, BROKEN, INVALID = 0, 1, 2


class Proof:
    """What a run of `oncelog prove` said."""

    def __init__(self, command: list[str]) -> None:
        self.run = subprocess.run(
            command, capture_output=True, text=True, timeout=PROOF_TIMEOUT_S, check=False
        )
        assert self.run.returncode != INVALID, f"{self.run.stderr}\n{command}"
        self.verdict: dict[str, Any] = json.loads(self.run.stdout)

    @property
    def failures(self) -> set[Failure]:
        """What failed."""
        return set(_failures(self.verdict["findings"]))

    def __str__(self) -> str:
        told = {name: self.verdict[name] for name in ("verdict", "reason", "basis", "unsteady", "not_met")}
        found = [(one["finding"], one["step"], one["why"]) for one in self.verdict["findings"]]
        return f"{json.dumps(told, indent=1)}\n{json.dumps(found, indent=1)}\n{self.run.stderr}"


def prove(member: Member, folder: pathlib.Path, *options: str) -> Proof:
    """Prove a program, in `folder`. Raises RealPartMissing."""
    return Proof(member.proof(folder, "--json", "--report", str(folder / "report"), *options))


def again(member: Member, folder: pathlib.Path, reproduction: pathlib.Path) -> Proof:
    """Repeat a trial of a program. Raises RealPartMissing."""
    words = [sys.executable, "-m", "oncelog", "prove", "--json", "--report", str(folder / "report")]
    return Proof([*words, "--again", str(reproduction), "--", *member.command(folder)])


def _failures(findings: list[dict[str, Any]]) -> Iterator[Failure]:
    for finding in findings:
        [disturbed] = finding["disturbances"]
        rule = disturbed["rule"]
        api = rule.get("on") or str(rule["crash_at"]).partition(" ")[2]
        for problem in finding["problems"]:
            yield Failure(disturbed["kind"], api, problem["kind"], finding["mistake"])
