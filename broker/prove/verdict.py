"""`Verdict` and `Finding`: what a proof has shown, as plain data."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import oncelog
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.prove.disturbances import KINDS, Disturbance, Then
from oncelog.broker.prove.judging.judge import JUDGED, is_kept, word_of
from oncelog.broker.seams.processes import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncelog.broker.prove.judging.judge import Problem
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.trial_result import LastWords

KEPT, BROKEN, NOT_JUDGED = "kept", "broken", "not judged"
FORMAT: Final = 1
"""The version of a finding's file."""
VANISHED: Final = "the finding did not come again"
DIFFERS: Final = "differs in undisturbed runs"


@dataclass(frozen=True)
class Finding:
    """One failed trial: what was disturbed, and what is wrong then."""

    disturbances: tuple[Disturbance, ...]
    problems: tuple[Problem, ...]
    why: tuple[str, ...]
    """Sentences about requests, by their numbers in ``timeline``."""
    mistake: str | None
    """The name of the mistake whose pattern the requests show: an anchor of docs/how-to/mistakes.md."""
    mend: str | None
    timeline: tuple[Mapping[str, Any], ...]
    """The requests of the trial, and what was done to the program."""
    last_words: tuple[LastWords, ...] = ()
    """What each process of the program wrote last."""
    same: int = 1
    """How many trials failed in the same way."""
    is_unsteady: bool = False
    """Whether the trial passed when it was run again."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its problems: ``lost``, ``doubled``, ..."""
        return tuple(dict.fromkeys(problem.kind for problem in self.problems))

    @property
    def judged(self) -> tuple[str, ...]:
        """The texts of the user's judge, without their numbers: those of like trials differ in them."""
        texts = (re.sub(r"\d+", "N", one.text) for one in self.problems if one.kind == JUDGED)
        return tuple(dict.fromkeys(texts))

    @property
    def title(self) -> str:
        """The problems, with Jepsen's names."""
        names = {one.kind: one.jepsen for one in self.problems}
        return ", ".join(kind if name is None else f"{kind} (Jepsen: {name})" for kind, name in names.items())

    @property
    def step(self) -> str:
        """The disturbances in words."""
        return "; then ".join(map(str, self.disturbances)) or "none: the program fails undisturbed"

    def rules(self) -> list[dict[str, Any]] | None:
        """Return the rules that repeat it without the prover; None where the program itself was killed or stopped."""
        if any(KINDS[one.kind].then is not Then.NOTHING for one in self.disturbances):
            return None
        return [
            {word: value for word, value in one.rule.items() if word != "listener"}
            for one in self.disturbances
        ]

    @property
    def again(self) -> list[dict[str, Any]]:
        """Its disturbances as ``prove(..., again=...)`` takes them: it then runs that trial only."""
        return [one.to_data() for one in self.disturbances]

    def to_data(self, plan: ProofPlan) -> dict[str, Any]:
        """Return the finding as JSON has it; `oncelog prove --again` repeats it."""
        return {
            "format": FORMAT,
            "oncelog": oncelog.__version__,
            "finding": self.title,
            "step": self.step,
            "problems": [
                {
                    "kind": one.kind,
                    "jepsen": one.jepsen,
                    "text": one.text,
                    "outputs": [list(o) for o in one.outputs],
                }
                for one in self.problems
            ],
            "why": list(self.why),
            "mistake": self.mistake,
            "mend": self.mend,
            "unsteady": self.is_unsteady,
            "trials": self.same,
            "disturbances": self.again,
            "rules": self.rules(),
            "plan": plan.to_data(),
            "last_words": [one.to_data() for one in self.last_words],
            "timeline": list(self.timeline),
        }


def read_finding(path: str) -> dict[str, Any]:
    """Return the file of a finding (`Finding.to_data`). Raises InvalidArgumentError."""
    try:
        data = json.loads(read_file(path))
        version, _, _ = data["format"], data["disturbances"], data["plan"]
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        raise InvalidArgumentError(f"{path} is no finding of oncelog prove") from None
    if version != FORMAT:
        raise InvalidArgumentError(f"{path} has format {version}, and this release reads {FORMAT}")
    return dict(data)


@dataclass
class Verdict:
    """The result of a proof, and its basis."""

    plan: ProofPlan
    reason: str | None = None
    """Why the program is not judged; None: it is."""
    findings: list[Finding] = field(default_factory=list)
    """One for each kind of failure, the first that was met."""
    unsteady: list[Finding] = field(default_factory=list)
    """Trials that failed, and passed when they were run again."""
    trials: int = 0
    classes: int = 0
    """How many classes of steps were tried."""
    classes_in_all: int = 0
    depth: int = 1
    not_met: list[Disturbance] = field(default_factory=list)
    """Disturbances that did not happen: the program did not come to the step."""
    notes: list[str] = field(default_factory=list)
    """What the undisturbed runs leave in doubt, in sentences."""
    left_out: Sequence[str] = ()
    """The kinds of disturbances that the cluster of the proof cannot take."""
    late_ms: int = 0
    """For how long readers waited for an abandoned transaction, at most."""
    late_step: str | None = None
    clients: tuple[str, ...] = ()
    """The program's Kafka clients, each with its version, as they say it."""
    outputs: int = 0
    """How many outputs an undisturbed run has."""
    undisturbed: tuple[Mapping[str, Any], ...] = ()
    """The timeline of an undisturbed run that came to no good end: the program is not judged, and this shows why."""
    last_words: tuple[LastWords, ...] = ()
    """What each of its processes wrote last."""
    is_interrupted: bool = False
    has_vanished: bool = False
    """Whether one finding was to be repeated (``--again``), and did not come again."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of problems of all findings."""
        return [kind for finding in self.findings for kind in finding.kinds]

    @property
    def word(self) -> str:
        """The verdict: ``exactly once``, ``at least once``, ..."""
        if self.reason is not None:
            return DIFFERS if "different outputs" in self.reason else NOT_JUDGED
        if self.is_interrupted and not self.findings:
            return NOT_JUDGED
        told = (one.kinds for one in self.findings)
        # A judge says that something is wrong, and the outputs, where they can be compared, what.
        compared = (kinds if len(kinds) == 1 else [one for one in kinds if one != JUDGED] for kinds in told)
        return VANISHED if self.has_vanished else word_of(kind for kinds in compared for kind in kinds)

    @property
    def promise(self) -> str:
        """Whether the promise is `KEPT`, `BROKEN`, or `NOT_JUDGED`."""
        if self.word in (DIFFERS, NOT_JUDGED) or not self.trials:
            return NOT_JUDGED
        return KEPT if is_kept(self.plan.promise, self.kinds) else BROKEN

    @property
    def basis(self) -> str:
        """The number of trials and classes that the verdict rests on."""
        text = f"{self.trials} trials, {self.classes} of {self.classes_in_all} classes of steps, depth {self.depth}"
        if self.not_met:
            count = len(self.not_met)
            text += f"; {count} {'disturbance' if count == 1 else 'disturbances'} did not happen"
        if self.plan.upstream is None and self.plan.nodes == 1:
            text += "; with a single node: without it, a client has none"
        elif self.left_out:
            text += f"; not on a real cluster: {', '.join(self.left_out)}"
        return text + ("; interrupted" if self.is_interrupted else "")

    def __str__(self) -> str:
        from oncelog.broker.prove.report import text_of

        return text_of(self)

    def assert_kept(self) -> None:
        """Raises AssertionError, with the findings and how to repeat them, unless the program keeps its promise."""
        __tracebackhide__ = True
        if self.promise != KEPT:
            raise AssertionError(str(self))

    def to_data(self) -> dict[str, Any]:
        """Return the verdict as JSON has it."""
        return {
            "format": FORMAT,
            "oncelog": oncelog.__version__,
            "verdict": self.word,
            "promise": {self.plan.promise: self.promise},
            "reason": self.reason,
            "basis": self.basis,
            "trials": self.trials,
            "classes": self.classes,
            "classes_in_all": self.classes_in_all,
            "depth": self.depth,
            "inputs": self.plan.input_count,
            "outputs": self.outputs,
            "clients": list(self.clients),
            "late_ms": self.late_ms,
            "late_step": self.late_step,
            "findings": [one.to_data(self.plan) for one in self.findings],
            "unsteady": [one.to_data(self.plan) for one in self.unsteady],
            "not_met": [str(one) for one in self.not_met],
            "notes": self.notes,
            "left_out": list(self.left_out),
            "undisturbed": list(self.undisturbed),
            "last_words": [one.to_data() for one in self.last_words],
        }
