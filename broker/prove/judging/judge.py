"""The judge: compares what came out of a trial with what came out of the undisturbed runs.

The names of anomalies are those of Jepsen's checker for Kafka (``jepsen.tests.kafka``), where it has one.
"""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.prove.judging.checks import changed_lines, listed_lines
from oncelog.broker.prove.judging.outputs import Output, orders_of, output_text, outputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from oncelog.broker.control.types import Offsets, Record
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.trial_result import TrialResult

LOST, DOUBLED, CHANGED = "lost", "doubled", "changed"
REORDERED, ABORTED_READ, STUCK = "reordered", "read what was aborted", "stuck"
OFFSETS, CHECK, JUDGED = "offsets", "check", "judged"
UNFINISHED = "unfinished"
"""A job has ended with exit code 0 before all was done; started again, it does the rest."""

Judge: TypeAlias = "Callable[[Sequence[Record], Mapping[str, Sequence[Record]]], Iterable[str] | None]"
"""A user's judge: what is wrong with the outputs, by topic, of the inputs."""

JEPSEN: Final[Mapping[str, str]] = {
    LOST: "lost-write",
    DOUBLED: "duplicate",
    REORDERED: "nonmonotonic-send",
    ABORTED_READ: "G1a",
}
RECORDS_SHOWN, LINES_SHOWN = 5, 10

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE, LOST_AND_DOUBLED = (
    "exactly once",
    "at least once",
    "at most once",
    "lost and doubled",
)


@dataclass(frozen=True)
class MovedOffset:
    """Where a group stands elsewhere than after an undisturbed run."""

    group: str
    topic: str
    partition: int
    offset: int | None
    """None: it has none."""
    wanted: int
    """Where it stands undisturbed."""

    def __str__(self) -> str:
        stands = "has no offset" if self.offset is None else f"stands at {self.offset}"
        then = "again" if self.offset is None or self.offset < self.wanted else "never"
        place = f"{self.topic}-{self.partition}"
        return f"group {self.group} {stands} in {place}, not at {self.wanted}: records are read {then}"


@dataclass(frozen=True)
class Problem:
    """One kind of difference between a trial and the undisturbed runs."""

    kind: str
    text: str
    """The problem in a sentence."""
    outputs: tuple[Output, ...] = ()
    """The outputs that are lost, doubled, ..."""
    offsets: tuple[MovedOffset, ...] = ()
    lines: tuple[str, ...] = ()
    """Of the output of ``--check``: those that are missing begin with ``-``, those that came more often with ``+``."""

    @property
    def jepsen(self) -> str | None:
        """Its name in Jepsen's checker for Kafka, if it is about records."""
        return None if self.lines else JEPSEN.get(self.kind)


@dataclass
class Baseline:
    """The common results of the undisturbed runs."""

    outputs: Counter[Output]
    orders: dict[tuple[str, str], list[str]]
    """The values of each topic and key, in their order."""
    offsets: dict[str, Offsets] = field(default_factory=dict)
    """Of the groups whose offsets are the same after each run."""
    check_output: str | None = None


def baseline_of(plan: ProofPlan, results: Sequence[TrialResult]) -> tuple[Baseline | None, str]:
    """Return what undisturbed runs have in common, and if they differ None and the difference. How often an output
    comes is no difference where the promise is at-least-once.
    """
    first, *others = ((one, outputs_of(plan, one.records)) for one in results)
    result, found = first
    counted, orders = Counter(found), orders_of(found)
    # Where some of the inputs are never committed, it is chance how many.
    offsets = {
        group: one
        for group, one in _of_inputs(plan, result).items()
        if "offsets" not in plan.ignore and not _unread_inputs(result, one)
    }
    may_double = plan.promise == "at-least-once"
    for other, outputs in others:
        if may_double and counted.keys() == set(outputs):
            counted &= Counter(outputs)
        elif Counter(outputs) != counted:
            more, less = Counter(outputs) - counted, counted - Counter(outputs)
            shown = "; ".join(filter(None, (_listed("more", more), _listed("less", less))))
            return None, (
                f"two undisturbed runs have different outputs: the second has {shown}; --ignore leaves out what is "
                "new in each run, --key compares one part only"
            )
        if lines := changed_lines(result.check_output, other.check_output).signed:
            return None, (
                f"two undisturbed runs have different outputs of --check: {'; '.join(lines[:LINES_SHOWN])}; "
                "--quiet S waits longer for them"
            )
        found_offsets = _of_inputs(plan, other)
        offsets = {group: one for group, one in offsets.items() if found_offsets.get(group) == one}
        orders = {key: values for key, values in orders.items() if orders_of(outputs).get(key) == values}
    return Baseline(counted, orders, offsets, result.check_output), ""


def _of_inputs(plan: ProofPlan, result: TrialResult) -> dict[str, Offsets]:
    """Return the offsets of groups in the input topics; in others, markers of aborted transactions move them."""
    return {
        group: {topic: partitions for topic, partitions in topics.items() if topic in plan.inputs}
        for group, topics in result.offsets.items()
    }


def _listed(what: str, outputs: Counter[Output]) -> str:
    if not outputs:
        return ""
    shown = ", ".join(map(output_text, list(outputs)[:RECORDS_SHOWN]))
    more = ", ..." if len(outputs) > RECORDS_SHOWN else ""
    return f"{sum(outputs.values())} {what}: {shown}{more}"


def judged_problems(judge: Judge, result: TrialResult) -> list[Problem]:
    """Return what the user's judge finds wrong with a trial. Raises InvalidArgumentError if it fails itself."""
    problems = [] if result.stuck is None else [Problem(STUCK, result.stuck)]
    try:
        found = judge(result.inputs, result.records)
        if isinstance(found, bool | str):
            raise TypeError(f"it returned {found!r}; expected texts that say what is wrong, or None")
        texts = tuple(map(str, found or ()))
    except Exception as error:
        [*_, frame] = traceback.extract_tb(error.__traceback__)
        raise InvalidArgumentError(
            f"the judge failed: {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
        ) from error
    return problems + [Problem(JUDGED, text) for text in texts]


def doubts(plan: ProofPlan, result: TrialResult) -> list[str]:
    """Return what an undisturbed run leaves in doubt, in sentences."""
    if result.watch is not None and result.watch.uses_share_groups:
        return []
    groups = _of_inputs(plan, result)
    if not any(groups.values()):
        return [
            "the program committed no offsets in an undisturbed run: what fails around a commit was not tried"
        ]
    return [
        f"in an undisturbed run group {group} committed {sum(partitions.values())} of the "
        f"{len(plan.inputs[topic])} records of {topic}"
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        if sum(partitions.values()) < len(plan.inputs[topic])
    ]


def is_behind(plan: ProofPlan, baseline: Baseline, result: TrialResult) -> bool:
    """Return whether something has not come that came in the undisturbed runs, or was not committed."""
    return lacks_outputs(plan, baseline, result) or any(
        (one.offset or 0) < one.wanted for one in _moved_offsets(baseline, result)
    )


def lacks_outputs(plan: ProofPlan, baseline: Baseline, result: TrialResult) -> bool:
    """Return whether an output has not come, or a line of the output of ``--check``."""
    missing = baseline.outputs - Counter(outputs_of(plan, result.records))
    return bool(
        missing or result.check_error or changed_lines(baseline.check_output, result.check_output).missing
    )


def has_unread_inputs(plan: ProofPlan, result: TrialResult) -> bool:
    """Return whether a group that has committed offsets in an input topic has not committed all of it."""
    return any(_unread_inputs(result, topics) for topics in _of_inputs(plan, result).values())


def _unread_inputs(result: TrialResult, committed: Offsets) -> bool:
    """Return whether the offsets that a group has committed in input topics leave out some of these topics' records."""
    ends = {(record.topic, record.partition): record.offset + 1 for record in result.inputs}
    return any(
        committed[topic].get(partition, 0) < end
        for (topic, partition), end in ends.items()
        if topic in committed
    )


def _moved_offsets(baseline: Baseline, result: TrialResult) -> Iterator[MovedOffset]:
    """Yield where groups stand elsewhere than after an undisturbed run."""
    for group, topics in baseline.offsets.items():
        for topic, partitions in topics.items():
            for partition, wanted in partitions.items():
                offset = result.offsets.get(group, {}).get(topic, {}).get(partition)
                if offset != wanted:
                    yield MovedOffset(group, topic, partition, offset, wanted)


def problems_of(plan: ProofPlan, baseline: Baseline, result: TrialResult) -> list[Problem]:
    """Return what is wrong with a trial."""
    problems = []
    outputs = outputs_of(plan, result.records)
    counted = Counter(outputs)
    missing, more = baseline.outputs - counted, counted - baseline.outputs
    doubled = Counter({one: count for one, count in more.items() if one in baseline.outputs})
    unknown = more - doubled
    if result.stuck is not None:
        problems.append(Problem(STUCK, result.stuck))
        missing = Counter()  # what has not come yet is not lost
    left, left_lines = _left_for_later(plan, baseline, result)
    if left or left_lines:
        problems.append(_unfinished(baseline, result, left, left_lines))
        missing -= left
    problems += _of_records(result, missing, doubled, unknown)
    reordered = _reordered(baseline, outputs)
    if reordered:
        problems.append(
            Problem(
                REORDERED, f"the outputs of key {reordered[0].key} are in another order", tuple(reordered)
            )
        )
    if not problems:
        problems += _of_offsets(baseline, result)
    if result.stuck is None:
        problems += _of_check(baseline, result, left_lines)
    return problems


def _of_records(
    result: TrialResult, missing: Counter[Output], doubled: Counter[Output], unknown: Counter[Output]
) -> list[Problem]:
    problems = []
    if (doubled or unknown) and result.aborted_reads:
        topics = ", ".join(result.aborted_reads)
        more = doubled + unknown
        text = _listed(f"from aborted transactions in {topics}", more)
        return [Problem(ABORTED_READ, text, tuple(more))]
    if missing and unknown:
        text = f"{_listed('missing', missing)}; {_listed('in their place', unknown)}"
        return [Problem(CHANGED, text, (*missing, *unknown))]
    if missing:
        problems.append(Problem(LOST, _listed("missing", missing), tuple(missing.elements())))
    if doubled:
        problems.append(Problem(DOUBLED, _listed("came once more", doubled), tuple(doubled.elements())))
    if unknown:
        problems.append(
            Problem(DOUBLED, _listed("of which no undisturbed run has one", unknown), tuple(unknown))
        )
    return problems


def _reordered(baseline: Baseline, outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs of the first key whose values are in another order, each counted where it came first."""
    for (topic, key), values in orders_of(outputs).items():
        wanted = baseline.orders.get((topic, key), [])
        first = list(dict.fromkeys(one for one in values if one in wanted))
        if first != [one for one in dict.fromkeys(wanted) if one in first]:
            return [Output(topic, key, one) for one in first]
    return []


def _of_offsets(baseline: Baseline, result: TrialResult) -> list[Problem]:
    """Return the offsets of groups that are others than after an undisturbed run."""
    moved = tuple(_moved_offsets(baseline, result))
    return [Problem(OFFSETS, "; ".join(map(str, moved)), offsets=moved)] if moved else []


def _of_check(baseline: Baseline, result: TrialResult, left: Counter[str]) -> list[Problem]:
    """Return what is wrong with the output of ``--check``, without the lines that a job has ``left`` for later."""
    if result.check_error is not None:
        return [] if left else [Problem(CHECK, f"--check ended with {result.check_error}")]
    changed = changed_lines(baseline.check_output, result.check_output)
    changed = changed._replace(missing=changed.missing - left)
    if not changed:
        return []
    texts = (
        listed_lines("missing", changed.missing, LINES_SHOWN),
        listed_lines("came once more", changed.doubled, LINES_SHOWN),
        listed_lines("that no undisturbed run has", changed.unknown, LINES_SHOWN),
    )
    kind = LOST if changed.missing else DOUBLED
    if changed.missing and (changed.doubled or changed.unknown):  # such as another sum
        kind = CHECK
    return [Problem(kind, "; ".join(filter(None, texts)), lines=changed.signed)]


def _left_for_later(
    plan: ProofPlan, baseline: Baseline, result: TrialResult
) -> tuple[Counter[Output], Counter[str]]:
    """Return the outputs, and the lines of ``--check``, that a job had not come to when it ended with exit code 0: its
    next start brought them. A group's offset says so, or the job did nothing twice.
    """
    if result.rest is None:
        return Counter(), Counter()
    before, after = (Counter(outputs_of(plan, one.records)) for one in (result, result.rest))
    lines, rest = (changed_lines(baseline.check_output, one.check_output) for one in (result, result.rest))
    came = (baseline.outputs - before) - (baseline.outputs - after)
    is_behind = any((one.offset or 0) < one.wanted for one in _moved_offsets(baseline, result))
    does_some_twice = after - before - came or rest.doubled - lines.doubled
    if does_some_twice and not is_behind:
        return Counter(), Counter()
    return came, lines.missing - rest.missing


def _unfinished(
    baseline: Baseline, result: TrialResult, outputs: Counter[Output], lines: Counter[str]
) -> Problem:
    """Return the problem of a job that has left something for later."""
    left = _listed("missing", outputs), listed_lines("missing", lines, LINES_SHOWN)
    behind = tuple(one for one in _moved_offsets(baseline, result) if (one.offset or 0) < one.wanted)
    places = (
        f"offset {one.offset or 0} of {one.topic}-{one.partition} is next for group {one.group}"
        for one in behind
    )
    text = "; ".join(("the job ended with exit code 0 before all was done", *filter(None, left), *places))
    return Problem(UNFINISHED, f"{text}; started again, it goes on there", tuple(outputs.elements()), behind)


# -- the verdict

_COUNTS_AS: Final[Mapping[str, tuple[str, ...]]] = {
    LOST: (LOST,),
    DOUBLED: (DOUBLED,),
    CHANGED: (LOST, DOUBLED),
    OFFSETS: (DOUBLED,),
    CHECK: (LOST, DOUBLED),
    JUDGED: (LOST, DOUBLED),
    REORDERED: (REORDERED,),
    ABORTED_READ: (ABORTED_READ,),
    STUCK: (STUCK,),
    UNFINISHED: (UNFINISHED,),
}
_BREAKS: Final[Mapping[str, frozenset[str]]] = {
    "exactly-once": frozenset((LOST, DOUBLED, REORDERED, ABORTED_READ, STUCK, UNFINISHED)),
    "at-least-once": frozenset((LOST, ABORTED_READ, STUCK, UNFINISHED)),
    "at-most-once": frozenset((DOUBLED, ABORTED_READ, STUCK)),
}


def word_of(kinds: Iterable[str]) -> str:
    """Return the verdict over trials with problems of these kinds."""
    found = {one for kind in kinds for one in _COUNTS_AS[kind]}
    if {LOST, DOUBLED} <= found:
        return LOST_AND_DOUBLED
    for kind, word in (
        (LOST, AT_MOST_ONCE),
        (ABORTED_READ, ABORTED_READ),
        (DOUBLED, AT_LEAST_ONCE),
        (REORDERED, REORDERED),
        (STUCK, STUCK),
        (UNFINISHED, UNFINISHED),
    ):
        if kind in found:
            return word
    return EXACTLY_ONCE


def is_kept(promise: str, kinds: Iterable[str]) -> bool:
    """Return whether a promise holds over trials with problems of these kinds."""
    return not any(one in _BREAKS[promise] for kind in kinds for one in _COUNTS_AS[kind])
