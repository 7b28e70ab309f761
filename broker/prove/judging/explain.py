"""Why a trial failed, in the protocol's words, from the journal; and the mistake whose pattern the requests show.

A lost output is traced to its input, to the commit that passed that input, and to the Produce that should have carried
it; a doubled one to its two Produce requests, and to the commit that came too late between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.prove.judging import judge
from oncelog.broker.prove.judging.clients import called, clients_of, known_for
from oncelog.broker.prove.judging.clues import silent_members
from oncelog.broker.prove.judging.evidence import Evidence
from oncelog.broker.prove.judging.mistakes import MISTAKES
from oncelog.broker.prove.judging.outputs import output_text
from oncelog.broker.prove.judging.patterns import (
    DoubledOutput,
    LostOutput,
    beyond_end,
    mistake_of_doubled,
    mistake_of_lost,
    mistake_of_reordered,
    was_taken_over,
)
from oncelog.broker.prove.judging.transactions import transaction_of
from oncelog.broker.prove.trials.history import record_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.judging.clients import Client
    from oncelog.broker.prove.judging.judge import MovedOffset, Problem
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.history import Event
    from oncelog.broker.prove.trials.trial_result import TrialResult


class Explanation(NamedTuple):
    """Why a trial failed."""

    sentences: tuple[str, ...]
    mistake: str | None
    """The name of a row of `MISTAKES`."""
    mend: str | None
    """The mend, and how it is explained."""


def mend_of(mistake: str, clients: Sequence[Client] = ()) -> str:
    """Return what to do about a mistake, in these clients, and how it is explained."""
    found = MISTAKES[mistake]
    return f"{found.title}: {found.mend}{called(mistake, clients)} (oncelog prove --explain {mistake})"


def explain(
    plan: ProofPlan,
    result: TrialResult,
    problems: Sequence[Problem],
    events: Sequence[Event],
    undisturbed: Sequence[Event],
) -> Explanation:
    """Return why a trial has its problems."""
    evidence = Evidence(plan, result, events, undisturbed)
    clients = clients_of(result)
    sentences: list[str] = []
    mistake: str | None = None
    for problem in problems:
        found, name = _of_problem(evidence, problem)
        sentences += found + known_for(evidence, problem, clients)
        mistake = mistake or name
    sentences += _of_offset_beyond_end(evidence)
    return Explanation(tuple(sentences), mistake, None if mistake is None else mend_of(mistake, clients))


def _of_problem(evidence: Evidence, problem: Problem) -> tuple[list[str], str | None]:
    if problem.lines or problem.kind == judge.CHECK:
        return _of_check(evidence, problem.lines)
    match problem.kind:
        case judge.LOST | judge.CHANGED:
            lost = LostOutput(evidence, problem.outputs[0])
            return [_of_lost(lost)], mistake_of_lost(lost)
        case judge.DOUBLED:
            doubled = DoubledOutput(evidence, problem.outputs[0])
            return _of_doubled(doubled), mistake_of_doubled(doubled)
        case judge.REORDERED:
            sends = [(event, record) for one in problem.outputs for event, record in evidence.sends_of(one)]
            return _of_reordered(evidence, sends), mistake_of_reordered(sends)
        case judge.ABORTED_READ:
            return _of_aborted_read(evidence), "read-uncommitted"
        case judge.STUCK:
            return _of_stuck(evidence), None
        case judge.OFFSETS:
            return _of_offsets(evidence, problem.offsets[0]), None
        case judge.UNFINISHED:
            return _of_unfinished(evidence, problem), None
    return [], None


def _of_lost(lost: LostOutput) -> str:
    evidence, what = lost.evidence, output_text(lost.output)
    if lost.unanswered:
        came = f"was sent ({evidence.name(lost.sends[0][0])})" if lost.sends else "never came"
        return (
            f"{what} {came}, and its producer does not hear of that: with acks=0 it asks for no answer, and takes it "
            "for written when it has left"
        )
    if repetition := lost.taken_for_repetition:
        event, (first, record) = repetition
        return (
            f"{what} was sent ({evidence.name(event)}) with the sequence number of {record_text(record)} "
            f"({evidence.name(first)}): the broker took it for a repetition, acknowledged it and wrote nothing; a "
            "fault of the client, not of the program"
        )
    if alone := lost.acknowledged_alone:
        return (
            f"{what} was acknowledged ({evidence.name(alone)}) by its leader alone (acks=1), "
            "which died before a follower had it"
        )
    if behind := lost.acknowledged_behind:
        refused = lost.sends[-1][0]
        return (
            f"{what} was refused ({evidence.name(refused)}: {refused.result}), and the request behind it acknowledged "
            f"({evidence.name(behind)}); {refused.result} is to be retried, and the client did not send it again: a "
            "fault of the client, not of the program"
        )
    if lost.input is not None and lost.commits:
        place = _place(lost.input)
        first = lost.commits[0]
        if lost.is_committed_with_another:
            return (
                f"{place} was committed in a transaction ({evidence.name(first)}) with another result: "
                + ", ".join(map(record_text, lost.others_committed[:3]))
            )
        return f"{place} was committed ({evidence.name(first)}) {_before_its_send(lost, first, what)}"
    if lost.sends:
        last = lost.sends[-1][0]
        return f"{what} was sent ({evidence.name(last)}: {last.result}), and never came again"
    return f"{what} was never sent"


def _before_its_send(lost: LostOutput, commit: Event, what: str) -> str:
    evidence = lost.evidence
    acknowledged = [event for event, _ in lost.sends if event.is_acknowledged]
    if not lost.sends:
        return f"although {what}, which comes of it, was never sent: nobody reads it again"
    last = lost.sends[-1][0]
    if acknowledged:
        ended = [
            one for one in evidence.events if one.is_commit is False and one.number > acknowledged[0].number
        ]
        if ended:
            return (
                f"although the transaction with {what} ({evidence.name(acknowledged[0])}) was aborted "
                f"({evidence.name(ended[0])}): nobody reads it again"
            )
        if acknowledged[0].transactional_id is None:
            return f"although {what}, which was acknowledged ({evidence.name(acknowledged[0])}), is not in the log"
        return f"although {what} ({evidence.name(acknowledged[0])}) is not in a committed transaction"
    return (
        f"before {what} was acknowledged ({evidence.name(last)}: {last.result}): what came between loses it"
        if last.number > commit.number
        else f"although {what} was not written ({evidence.name(last)}: {last.result})"
    )


def _of_doubled(doubled: DoubledOutput) -> list[str]:
    evidence, sends = doubled.evidence, doubled.sends
    if not doubled.is_known:
        written = ", ".join(f"{evidence.name(event)}{_at(record)}" for event, record in sends[:3])
        return [f"{output_text(doubled.output)} was written by {written}: no undisturbed run comes to it"]
    if len(sends) < 2:
        return [f"{output_text(doubled.output)} came once more"]
    (first, one), (last, two) = sends[0], sends[-1]
    sentences = [
        f"{output_text(doubled.output)} was written twice: by {evidence.name(first)}{_at(one)} "
        f"and by {evidence.name(last)}{_at(two)}"
    ]
    if doubled.is_sent_to_another_partition:
        return [
            *sentences,
            "its producer sent it again, to another partition, where nothing tells that it was written; a fault of the "
            "client, not of the program",
        ]
    if doubled.input is not None and first is not last:
        sentences += _of_commit(doubled, doubled.input, first, last)
        sentences += _of_offsets_with_it(doubled)
    for event, record in doubled.aborted[:1]:
        sentences.append(
            f"{evidence.name(event)}{_at(record)} does not count: its transaction was not committed"
        )
    if found := doubled.read_before_its_id:
        read, init = found
        sentences.append(
            f"{evidence.process(last)} asked where to begin ({evidence.name(read)}) before it asked for its "
            f"transactional id ({evidence.name(init)}), which ends what another one has open: the offset was old"
        )
    return sentences


def _of_commit(doubled: DoubledOutput, record: Record, first: Event, last: Event) -> list[str]:
    """Return when the input of an output that was written ``first`` and ``last`` was committed. If one process wrote
    both, it read the input once, and the commit has nothing to do with it.
    """
    evidence, place = doubled.evidence, _place(record)
    if (first.instance, first.run) == (last.instance, last.run):
        return []
    commits = evidence.commits_past(record)
    if not commits:
        if evidence.uses_share_groups:
            return [f"{place} was not accepted before it was given out again"]
        return [f"{place} was never committed"]
    commit = commits[0]
    end = transaction_of(commit, evidence.events)[-1] if commit.api == "TxnOffsetCommit" else commit
    if commit.number <= last.number < end.number:
        return [
            f"{place} was committed in a transaction ({evidence.name(commit)}) that ended only later "
            f"({evidence.name(end)}): {evidence.process(last)} had begun before that"
        ]
    if commit.number > last.number:
        return [f"{place} was committed only later ({evidence.name(commit)}): what came between doubles it"]
    if commit.number > first.number:
        return [f"{place} was committed between them ({evidence.name(commit)})"]
    return []


def _of_offsets_with_it(doubled: DoubledOutput) -> list[str]:
    """Return what is wrong with the offset that was committed with a doubled output."""
    evidence, record = doubled.evidence, doubled.input
    if record is not None and (own := doubled.own_offset):
        return [
            f"the offset that was committed with it ({evidence.name(own)}) is its input's own, {record.offset}: "
            "whoever begins there reads it again"
        ]
    if found := doubled.other_group:
        event, group = found
        groups = ", ".join(sorted(evidence.groups_joined))
        return [
            f"its offset was committed for group {group} ({evidence.name(event)}), and the program reads in {groups}"
        ]
    return []


def _of_offset_beyond_end(evidence: Evidence) -> list[str]:
    """Return which commit is of an offset that no record has yet."""
    if (found := beyond_end(evidence)) is None:
        return []
    event, topic, partition, offset = found
    return [
        f"offset {offset} of {topic}-{partition} was committed ({evidence.name(event)}), and it ends at "
        f"{evidence.end_of(topic, partition)}"
    ]


def _place(record: Record) -> str:
    return f"offset {record.offset} of {record.topic}-{record.partition}"


def _at(record: Record) -> str:
    return f" ({record.topic}-{record.partition}@{record.offset})" if record.offset >= 0 else ""


def _of_reordered(evidence: Evidence, sends: Sequence[tuple[Event, Record]]) -> list[str]:
    shown = "; ".join(
        f"{evidence.name(event)}: {record_text(record)}, {event.result}" for event, record in sends[:6]
    )
    return [f"they were sent so: {shown}"]


def _of_aborted_read(evidence: Evidence) -> list[str]:
    return [
        f"the program fetches {topic} with isolation level read_uncommitted, and "
        f"{record_text(records[0])} belongs to a transaction that was aborted"
        for topic, records in evidence.result.aborted_reads.items()
    ]


def _of_offsets(evidence: Evidence, moved: MovedOffset) -> list[str]:
    """Return which commit is to blame for the place where a group stands."""
    place = (moved.group, moved.topic, moved.partition)
    commits = [one for one in evidence.events if place in one.committed]
    sentences = []
    counted = [one for one in commits if evidence.had_effect(one)]
    if counted:
        last = counted[-1]
        sentences.append(
            f"the last commit of {moved.topic}-{moved.partition} is {evidence.name(last)}, "
            f"of offset {last.committed[place]}"
        )
    else:
        sentences.append(f"no offset of {moved.topic}-{moved.partition} was committed")
    failed = [one for one in commits if one.committed[place] == moved.wanted and one not in counted]
    if failed:
        how = (
            failed[-1].result
            if failed[-1].errors or not failed[-1].transactional_id
            else "its transaction was not committed"
        )
        sentences.append(
            f"offset {moved.wanted} was in {evidence.name(failed[-1])} ({how}), and never came again"
        )
    return sentences


def _of_unfinished(evidence: Evidence, problem: Problem) -> list[str]:
    """Return which process ended too early, and what it had committed."""
    ended = ", ".join(
        f"instance {instance}, start {run}" for instance, run in sorted(evidence.result.finished)
    )
    sentences = _of_offsets(evidence, problem.offsets[0]) if problem.offsets else []
    return [*sentences, f"exit code 0 ({ended}) says that it is done: nobody starts it again"]


def _of_check(evidence: Evidence, lines: Sequence[str]) -> tuple[list[str], str | None]:
    """Return how far the program had committed when it was disturbed: what it does outside Kafka is before or behind
    that.
    """
    if not evidence.result.fired_at:
        return [], None
    at_s = evidence.result.fired_at[-1]
    committed: dict[tuple[str, str, int], tuple[int, Event]] = {}
    for one in evidence.events:
        if one.at_s <= at_s and evidence.had_effect(one):
            committed |= {place: (offset, one) for place, offset in one.committed.items()}
    places = ", ".join(
        f"{topic}-{partition} up to {offset} ({evidence.name(event)})"
        for (_, topic, partition), (offset, event) in sorted(committed.items())
    )
    before = f"when that happened, the program had committed {places or 'nothing'}"
    more, less = (any(one.startswith(sign) for one in lines) for sign in "+-")
    if not any(one.committed for one in evidence.undisturbed):
        return [], "zombie" if more and was_taken_over(evidence) else None  # its offsets are elsewhere
    if more and was_taken_over(evidence):
        return [before], "zombie"
    if more and not less:
        return [f"{before}: what it had done outside Kafka beyond that, it did again"], "two-writes"
    if less and not more and committed:
        return [f"{before}: what it had not done of that outside Kafka, nobody does"], "offsets-before-work"
    return [before], None


def _of_stuck(evidence: Evidence) -> list[str]:
    """Return what was seen last, and whose silence it is."""
    result, events = evidence.result, evidence.events
    sentences = [str(end) for end in result.own_ends[-2:]] + silent_members(result, events)
    since = max([*result.fired_at, *result.broker_ends], default=0.0)
    later = [one for one in events if one.at_s > since]
    if result.broker_ends and not later:
        sentences.append(
            "the client sent nothing after the broker was there again: a fault of the client, not of the program"
        )
    elif later:
        last = later[-1]
        sentences.append(f"the last request was {last.text} ({evidence.name(last)}: {last.result})")
    return sentences
