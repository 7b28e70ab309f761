"""`Prover`: runs the trials of a plan, several side by side, and gives the verdict.

The program runs undisturbed twice: what both runs have in common is what every trial must come to. The first run gives
the steps (`oncelog.broker.prove.steps`). A trial that fails is run again before it is reported.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.prove.disturbances import KINDS, SURVIVED, Disturbance
from oncelog.broker.prove.judging.clients import clients_of
from oncelog.broker.prove.judging.clues import shared_ids, silent_members, unknown_topics, why_nothing
from oncelog.broker.prove.judging.explain import explain, mend_of
from oncelog.broker.prove.judging.judge import (
    JUDGED,
    OFFSETS,
    STUCK,
    Problem,
    baseline_of,
    doubts,
    has_unread_inputs,
    is_behind,
    judged_problems,
    lacks_outputs,
    problems_of,
)
from oncelog.broker.prove.judging.outputs import check_paths
from oncelog.broker.prove.outlook import Outlook
from oncelog.broker.prove.plan import FOLDER_VARIABLE
from oncelog.broker.prove.steps import counter_rules, planned
from oncelog.broker.prove.trials.history import events_of, timeline
from oncelog.broker.prove.trials.program import listener_of
from oncelog.broker.prove.trials.security import make_security
from oncelog.broker.prove.trials.seed import make_seed
from oncelog.broker.prove.trials.trial import Trial
from oncelog.broker.prove.verdict import Finding, Verdict
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.error_groups import first_error
from oncelog.broker.seams.processes import computed_s, kill_processes_with, new_folder, remove_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncelog.broker.prove.judging.judge import Baseline, Judge
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.bench import Ground
    from oncelog.broker.prove.trials.history import Event
    from oncelog.broker.prove.trials.trial_result import TrialResult

UNDISTURBED_RUNS: Final = 2
UNDISTURBED_QUIET: Final = 5
"""Factor on the plan's ``quiet_s`` in undisturbed runs: what the program will still do is not known yet. Of 0.3 s it
makes 1.5: Sarama's commits wait for up to two of its fetches, 1 s.
"""
UNDISTURBED_PATIENCE: Final = 30
"""Factor on ``quiet_s``: so long an undisturbed program may be quiet that has not committed all of its input."""
PATIENCE: Final = 10
"""Factor on ``quiet_s``: so long a program may be quiet that is behind."""
RETRY_S: Final = 6.0
"""So long, at least, after a disturbance that the program has survived: a client that has to send something again may
wait for its long polls first. librdkafka's commits come 3 s later.
"""
LATER: Final = 1.5
"""A program that went on after so many seconds gets so many times as long in all trials that follow."""
REPEATS: Final = 3
"""How often a trial that failed is run again, until it fails once more."""
STUCK_REPEATS: Final = 2
"""How often a trial is run again that was only stuck: it counts if it is stuck each time."""
STUCK_PATIENCE: Final = 3.25
"""Factor on the plan's ``timeout_s`` then, and so long it may be behind: of 20 s it makes 65. Clients wait 30 s for a
response, unless they are told otherwise; kafka-python 3 waits so long for one that its closed connection has swallowed,
and may do so twice. kafka-go writes to the leader that it knows until it has known it for 6 s.
"""
STUCK_AGAIN: Final = 0.3
"""Factor on the plan's ``timeout_s`` where the program was stuck each time after the same disturbance of an earlier
request of the same API; such a trial is not run again.
"""
SECOND_KINDS: Final = ("kill after", "lose response", "kill before")
"""The kinds that are tried second, at the requests with which a program comes back."""
SECOND_APIS: Final = (
    "EndTxn",
    "Produce",
    "TxnOffsetCommit",
    "OffsetCommit",
    "InitProducerId",
    "JoinGroup",
    "SyncGroup",
    "OffsetFetch",
    "AddPartitionsToTxn",
    "ShareAcknowledge",
)


@dataclass(frozen=True)
class Budget:
    """How much a proof may try. None: everything."""

    trials: int | None = None
    seconds: float | None = None


class Progress(NamedTuple):
    """A report of a proof while it runs."""

    done: int
    planned: int
    text: str | None
    """A line about what has just been found; None: nothing was."""


class FailedUndisturbedError(Exception):
    """The program fails without a disturbance; the finding is in the verdict."""


class NotJudgedError(Exception):
    """The program cannot be judged. The text says why; ``result`` is the undisturbed run that shows it, if one does."""

    def __init__(self, text: str, result: TrialResult | None = None) -> None:
        super().__init__(text)
        self.result = result


class Prover:
    """``tell`` is called with the progress. ``first`` are disturbances that are tried before the others, such as those
    that failed last. ``jobs`` None: as many trials run side by side as keep the cores busy.
    """

    def __init__(
        self,
        plan: ProofPlan,
        tell: Callable[[Progress], None],
        *,
        budget: Budget = Budget(),
        depth: int = 1,
        jobs: int | None = None,
        command_config: Mapping[str, object] | str | None = None,
        first: Sequence[tuple[Disturbance, ...]] = (),
        judge: Judge | None = None,
    ) -> None:
        self._plan = plan
        self._folder: str
        """Of the trials alone."""
        self._tell = tell
        self._budget = budget
        self._depth = depth
        self._jobs = jobs if plan.upstream is None else 1
        if jobs is None and plan.is_checked_in_common:
            self._jobs = 1
        self._command_config = command_config
        self._first = first
        self._judge = judge
        self._numbers = 0
        self._ground: Ground
        self._baseline: Baseline | None = None
        self._is_compared = True
        """Whether undisturbed runs have the same outputs; only a judge does without that."""
        self._undisturbed: list[Event] = []
        self._queue: list[tuple[Disturbance, ...]] = []
        self._deeper: list[tuple[Disturbance, ...]] = []
        self._deeper_seen: set[Any] = set()
        self._planned = 0
        self._ends_at: float | None = None
        self._began: float
        """When the trials of the queue began (real time)."""
        self._groups: dict[Any, Finding] = {}
        self._stuck_after: set[Any] = set()
        """The disturbances, as `_likeness` gives them, after which the program was stuck each time."""
        self._latest = (0.0, "")
        """How long the program took at most to go on by itself, and after which disturbance."""
        self._retry_s = RETRY_S
        """How long a program that has survived a disturbance may be behind."""
        self._outlook: Outlook
        self.verdict = Verdict(plan)
        """The result so far."""

    async def run(self) -> Verdict:
        """Run the trials; return the verdict. Raises CommandError, InvalidArgumentError, SnapshotError, KafkaError."""
        with self._in_folder():
            return await self._prove()

    async def again(self, disturbances: tuple[Disturbance, ...]) -> Verdict:
        """Run one trial, after the undisturbed runs; return the verdict over it alone. Raises as `run`."""
        with self._in_folder():
            return await self._repeat_one(disturbances)

    @contextmanager
    def _in_folder(self) -> Iterator[None]:
        """Make the folder of the trials. At the end, remove it, and kill the processes that the program left."""
        self._folder = new_folder()
        try:
            yield
        finally:
            late_s, step = self._latest
            if step:
                self.verdict.notes.append(
                    f"the program goes on by itself, but only {late_s:.0f} s later, where {step}"
                )
            for process in kill_processes_with(FOLDER_VARIABLE, self._folder):
                self.verdict.notes.append(
                    f"a process of the program left its process group, and was killed at the end ({process}): run the "
                    "program in the foreground"
                )
            remove_folder(self._folder)

    async def _prove(self) -> Verdict:
        self._ground = await self._new_ground()
        counts = await self._begin()
        if counts is None:
            return self.verdict
        found = [
            (one,)
            for one in planned(self._undisturbed, counts, is_checked=self._plan.check is not None)
            if one.kind not in self._ground.left_out
        ]
        first = [one for one in self._first if one in found]
        self._queue = first + [one for one in found if one not in first]
        self.verdict.classes_in_all = len(self._queue)
        self._limit()
        self._tell(Progress(0, self._planned, self._foretold()))
        await self._work()
        if self._depth > 1 and not self.verdict.is_interrupted:
            self._queue = self._deeper
            self.verdict.depth = 2
            self.verdict.classes_in_all += len(self._queue)
            self._limit()
            await self._work()
        return self.verdict

    async def _repeat_one(self, disturbances: tuple[Disturbance, ...]) -> Verdict:
        self._ground = await self._new_ground()
        for one in disturbances:
            if one.kind in self._ground.left_out:
                who = "one node" if self._plan.upstream is None else "a cluster"
                raise InvalidArgumentError(f"{who} cannot take this disturbance ({one.kind}): {one}")
        if await self._begin() is None:
            return self.verdict
        self.verdict.classes_in_all = 1
        self._queue, self._planned = [disturbances], 1
        self.verdict.depth = len(disturbances)
        await self._work()
        if self.verdict.not_met:
            self.verdict.reason = "the disturbance did not happen: the program did not come to the step"
        elif not self.verdict.findings:
            self.verdict.has_vanished = True
        return self.verdict

    async def _new_ground(self) -> Ground:
        """Return what the trials have in common. Raises InvalidArgumentError, SnapshotError, KafkaError."""
        budget = self._budget
        for name, number in (("--jobs", self._jobs), ("trials", budget.trials), ("seconds", budget.seconds)):
            if number is not None and number <= 0:
                raise InvalidArgumentError(f"{name} {number}: expected more than 0")
        security = make_security(self._plan, self._folder)
        if self._plan.upstream is None:
            return await make_seed(self._plan, security)
        from oncelog.broker.prove.trials.upstream import Upstream

        upstream = Upstream(self._plan, security, self._command_config)
        await upstream.check(self._plan)
        self.verdict.left_out = upstream.left_out
        return upstream

    # -- undisturbed

    async def _begin(self) -> list[tuple[dict[str, Any], int]] | None:
        """Return what `_run_undisturbed` does; None if that has decided the verdict."""
        try:
            return await self._run_undisturbed()
        except NotJudgedError as error:
            self.verdict.reason = str(error)
            if error.result is not None:
                self.verdict.undisturbed = tuple(timeline(error.result, events_of(error.result)))
                self.verdict.last_words = tuple(error.result.last_words)
        except FailedUndisturbedError:
            pass
        return None

    async def _run_undisturbed(self) -> list[tuple[dict[str, Any], int]]:
        """Run the program undisturbed; return the rules of the writes at which the broker may die, with their counts.
        Raises NotJudgedError.
        """
        written = [
            name for name in self._plan.topics if name in self._plan.outputs or name not in self._plan.inputs
        ]
        counters = [] if "broker dies" in self._ground.left_out else counter_rules(written)
        results: list[TrialResult] = []
        for number in range(UNDISTURBED_RUNS):
            computed_before_s = computed_s()
            result = await self._trial((), counters if number == 0 else ())
            self.verdict.clients = tuple(one.text for one in clients_of(result))
            self._check_undisturbed(result)
            results.append(result)
        run_s = results[-1].duration_s - (UNDISTURBED_QUIET - 1) * self._plan.quiet_s
        self._outlook = Outlook(run_s, computed_s() - computed_before_s, self._jobs)
        if self._judge is not None:
            for problem in judged_problems(self._judge, results[0]):
                raise NotJudgedError(f"the judge finds fault with an undisturbed run: {problem.text}")
        baseline, difference = baseline_of(self._plan, results)
        if baseline is None and self._judge is not None:  # that is why there is a judge
            self._is_compared = False
            baseline, difference = baseline_of(self._plan, results[:1])
        if baseline is None:
            self.verdict.outputs = sum(len(rows) for rows in results[0].records.values())
            raise NotJudgedError(difference)
        self._baseline = baseline
        self.verdict.outputs = sum(baseline.outputs.values())
        self._undisturbed = events_of(results[0])
        if not self.verdict.outputs and not baseline.check_output:
            raise NotJudgedError(
                "the program wrote nothing to "
                + (", ".join(self._plan.outputs) or "what --check shows")
                + why_nothing(self._plan, self._undisturbed),
                results[0],
            )
        check_paths(self._plan, [one for rows in results[0].records.values() for one in rows])
        if not self._plan.until_exit:
            self.verdict.notes += doubts(self._plan, results[0])
        if self._plan.is_checked_in_common and self._jobs == 1:
            self.verdict.notes.append(
                "one trial runs at a time: --check and --reset do not both name {dir} or {trial}, so trials would mix "
                "their results"
            )
        return list(zip(counters, results[0].matched, strict=True))

    def _check_undisturbed(self, result: TrialResult) -> None:
        """Raises NotJudgedError for a run that came to no good end; if its instances fence each other, that is found
        before.
        """
        events = events_of(result)
        if (result.own_ends or result.stuck is not None) and (shared := shared_ids(events)):
            text = (
                f"undisturbed, instances fence each other: all have the transactional id {', '.join(shared)}"
            )
            problem, mistake = Problem(STUCK, text), "one-id-for-two"
            why = tuple(map(str, result.own_ends[:2]))
            rows = tuple(timeline(result, events))
            self.verdict.trials = 1
            self.verdict.findings.append(Finding((), (problem,), why, mistake, mend_of(mistake), rows))
            raise FailedUndisturbedError
        if result.own_ends and not (self._plan.until_exit and result.stuck is None):
            end = result.own_ends[0]
            job = "" if end.exit_code else "; a job that ends when it is done needs --until-exit"
            raise NotJudgedError(f"undisturbed, the program ends by itself ({end}){job}", result)
        if result.stuck is not None:
            reasons = "; ".join(
                [result.stuck, *unknown_topics(self._plan, events), *silent_members(result, events)]
            )
            raise NotJudgedError(f"undisturbed, the program is stuck: {reasons}", result)

    # -- trials

    async def _trial(
        self,
        disturbances: Sequence[Disturbance],
        counters: Sequence[dict[str, Any]] = (),
        *,
        after_stuck: bool = False,
    ) -> TrialResult:
        """``after_stuck``: the program was stuck, and gets more time."""
        self._numbers += 1
        folder = f"{self._folder}/trial{self._numbers}"
        plan, behind, lacks = self._plan, partial(has_unread_inputs, self._plan), _lacks_nothing
        if self._baseline is None:
            patience_s = UNDISTURBED_PATIENCE * plan.quiet_s
            plan = replace(plan, quiet_s=UNDISTURBED_QUIET * plan.quiet_s)
        else:
            patience_s = PATIENCE * plan.quiet_s
            if any(KINDS[one.kind].then in SURVIVED for one in disturbances):
                patience_s = max(patience_s, self._retry_s)
            if _likeness(disturbances) in self._stuck_after:
                plan = replace(plan, timeout_s=STUCK_AGAIN * plan.timeout_s)
            elif after_stuck:
                plan = replace(plan, timeout_s=STUCK_PATIENCE * plan.timeout_s)
                patience_s = max(patience_s, plan.timeout_s)
            behind = partial(is_behind, plan, self._baseline)
            if self._is_compared:
                lacks = partial(lacks_outputs, plan, self._baseline)
        start_s = self._plan.timeout_s
        return await Trial(
            plan,
            self._ground,
            disturbances,
            folder,
            counters,
            behind,
            lacks,
            patience_s=patience_s,
            start_s=start_s,
        ).run()

    def _limit(self) -> None:
        """Keep the budget."""
        if self._budget.trials is not None:
            del self._queue[max(0, self._budget.trials - self.verdict.trials) :]
        if self._budget.seconds is not None and self._ends_at is None:
            self._ends_at = real_time.monotonic() + self._budget.seconds
        self._planned += len(self._queue)
        self._queue.reverse()

    def _foretold(self) -> str:
        """Return how much is tried, and how long it takes."""
        seconds = self._outlook.foretell(self._planned)
        if self._budget.seconds is not None:
            seconds = min(seconds, self._budget.seconds)
        return (
            f"{self.verdict.classes_in_all} classes of steps, of which {self._planned} are tried; "
            f"{'about' if self._plan.upstream is None else 'at least'} {_time_text(seconds)}"
        )

    async def _work(self) -> None:
        """Run the trials of the queue, several side by side. Raises what a trial raises."""
        self._began = real_time.monotonic()
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(self._outlook.jobs):
                    nursery.start_soon(self._worker)
        except BaseExceptionGroup as group:
            error = first_error(group)
            if not isinstance(error, KeyboardInterrupt):
                raise error from None
            self.verdict.is_interrupted = True

    async def _worker(self) -> None:
        while self._queue and (self._ends_at is None or real_time.monotonic() < self._ends_at):
            disturbances = self._queue.pop()
            result = await self._trial(disturbances)
            text = await self._look_at(disturbances, result)
            self._tell(Progress(self.verdict.trials, self._planned, text))
            if self._budget.seconds is None and self._depth == 1:
                self._tell_if_late()

    def _tell_if_late(self) -> None:
        """Say so if the trials take much longer than foretold."""
        done, passed_s = self.verdict.trials, real_time.monotonic() - self._began
        left_s = self._outlook.renewed(done, self._planned, passed_s)
        if left_s is not None:
            text = f"it takes longer than was said: about {_time_text(left_s)} more"
            self._tell(Progress(done, self._planned, text))

    async def _look_at(self, disturbances: tuple[Disturbance, ...], result: TrialResult) -> str | None:
        """Judge a trial; return a line about what was found."""
        self.verdict.trials += 1
        if result.happened < len(disturbances):
            self.verdict.not_met.append(disturbances[-1])
            return None
        self.verdict.classes += 1
        if result.late_ms > self.verdict.late_ms:
            self.verdict.late_ms, self.verdict.late_step = result.late_ms, str(disturbances[0])
        problems = self._problems(result)
        if not problems:
            if self._depth > 1 and len(disturbances) == 1:
                self._go_deeper(disturbances[0], result)
            return None
        is_stuck = _is_stuck(problems)
        if is_stuck and len(problems) == 1 and _likeness(disturbances) in self._stuck_after:
            return self._add(self._finding(disturbances, result, problems, is_unsteady=False))
        again, same = await self._repeat(disturbances, is_stuck=is_stuck)
        is_late = is_stuck and not _is_stuck(same) and _took_longer(again, result)
        if is_late:
            self._note_late(disturbances, again)
        elif _is_stuck(same):
            self._stuck_after.add(_likeness(disturbances))
        if same:
            return self._add(self._finding(disturbances, again, same, is_unsteady=False))
        return None if is_late else self._add(self._finding(disturbances, result, problems, is_unsteady=True))

    async def _repeat(
        self, disturbances: tuple[Disturbance, ...], *, is_stuck: bool
    ) -> tuple[TrialResult, list[Problem]]:
        """Run a trial again that failed; return its result and what is wrong then: nothing, if it is unsteady. What is
        lost only if the program is slow enough may not be lost at once; where it was only stuck, the machine may have
        been slow, or the client waits for a time-out of its own.
        """
        for _ in range(STUCK_REPEATS if is_stuck else REPEATS):
            again = await self._trial(disturbances, after_stuck=is_stuck)
            same = self._problems(again) if again.happened == len(disturbances) else []
            if not _is_stuck(same) if is_stuck else same:
                break
        return again, same

    def _note_late(self, disturbances: tuple[Disturbance, ...], result: TrialResult) -> None:
        """The program went on by itself, late: its client waited for a time-out, and may do so in other trials."""
        self._retry_s = max(self._retry_s, LATER * result.waited_s)
        self._latest = max(self._latest, (result.duration_s - result.fired_at[-1], str(disturbances[0])))

    def _problems(self, result: TrialResult) -> list[Problem]:
        """Return what is wrong with a trial."""
        assert self._baseline is not None
        if self._judge is None:
            return problems_of(self._plan, self._baseline, result)
        problems = judged_problems(self._judge, result)
        if self._is_compared and any(one.kind == JUDGED for one in problems):
            others = problems_of(self._plan, self._baseline, result)
            problems += [one for one in others if one.kind not in (STUCK, OFFSETS)]
        return problems

    def _finding(
        self,
        disturbances: tuple[Disturbance, ...],
        result: TrialResult,
        problems: list[Problem],
        *,
        is_unsteady: bool,
    ) -> Finding:
        events = events_of(result)
        explanation = explain(self._plan, result, problems, events, self._undisturbed)
        return Finding(
            disturbances,
            tuple(problems),
            explanation.sentences,
            explanation.mistake,
            explanation.mend,
            tuple(timeline(result, events)),
            tuple(result.last_words),
            is_unsteady=is_unsteady,
        )

    def _add(self, finding: Finding) -> str | None:
        """Add a finding; return a line about it if it is the first of its kind."""
        group = (finding.kinds, finding.mistake, finding.is_unsteady, finding.judged)
        known = self._groups.get(group)
        if known is not None:
            self._replace(known, replace(known, same=known.same + 1), group)
            return None
        self._groups[group] = finding
        (self.verdict.unsteady if finding.is_unsteady else self.verdict.findings).append(finding)
        return f"{'unsteady: ' if finding.is_unsteady else ''}{finding.title}: {finding.step}"

    def _replace(self, old: Finding, new: Finding, group: Any) -> None:
        found = self.verdict.unsteady if old.is_unsteady else self.verdict.findings
        found[found.index(old)] = self._groups[group] = new

    def _go_deeper(self, first: Disturbance, result: TrialResult) -> None:
        """Plan a second disturbance at the steps with which the program came back from the first."""
        since = result.fired_at[0]
        for event in events_of(result):
            key = (first.kind, first.rule.get("on") or first.rule.get("crash_at"), event.api, event.is_commit)
            if event.at_s <= since or event.api not in SECOND_APIS or key in self._deeper_seen:
                continue
            self._deeper_seen.add(key)
            for kind in SECOND_KINDS:
                action, value = KINDS[kind].action
                rule = {"on": event.api, "listener": listener_of(event.instance), "nth": 1, action: value}
                self._deeper.append((first, Disturbance(kind, rule)))


def _lacks_nothing(result: TrialResult) -> bool:
    """Stands for `lacks_outputs` in undisturbed runs, and where the user judges the outputs."""
    return False


def _is_stuck(problems: Sequence[Problem]) -> bool:
    """Return whether a trial was stuck, or has only not committed all: with more time, it may do the rest."""
    kinds = {one.kind for one in problems}
    return STUCK in kinds or kinds == {OFFSETS}


def _took_longer(again: TrialResult, stuck: TrialResult) -> bool:
    """Return whether a trial took longer than one that was stuck before; otherwise it went better by chance."""
    return bool(again.fired_at) and (
        again.duration_s > stuck.duration_s or again.waited_s > stuck.waited_s > 0
    )


def _likeness(disturbances: Sequence[Disturbance]) -> Any:
    """Return what disturbances have in common that happen to requests, or writes, of the same kind."""
    return tuple((one.kind, *map(one.rule.get, ("on", "crash_at", "topic"))) for one in disturbances)


def _time_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
