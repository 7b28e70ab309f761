"""Why a trial failed, in the protocol's words, from the journal; and the mistake whose pattern the requests show.

A lost output is traced to its input, to the commit that passed that input, and to the Produce that should have carried
it; a doubled one to its two Produce requests, and to the commit that came too late between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.broker.control.names import meant
from oncelog.broker.prove.disturbances import KINDS, RETRIABLE, Then
from oncelog.broker.prove.history import record_text
from oncelog.broker.prove.judge import (
    ABORTED_READ,
    CHANGED,
    DOUBLED,
    LOST,
    REORDERED,
    STUCK,
)
from oncelog.broker.prove.mistakes import MISTAKES
from oncelog.broker.prove.outputs import output_of, output_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.history import Event
    from oncelog.broker.prove.judge import Problem
    from oncelog.broker.prove.outputs import Output
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trial_result import TrialResult


SILENT_S: Final = 7.0
"""A member is silent after so many seconds without a heartbeat. Kafka's clients send one every 3 s, in the consumer
protocol every 5 s.
"""
_RETRIED: Final = frozenset(RETRIABLE.values())
_OF_MEMBERS: Final = frozenset(
    ("SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat")
)


class Explanation(NamedTuple):
    """Why a trial failed."""

    sentences: tuple[str, ...]
    mistake: str | None
    """The name of a row of `MISTAKES`."""

    @property
    def mend(self) -> str | None:
        """The mend, and how it is explained."""
        return None if self.mistake is None else mend_of(self.mistake)


def mend_of(mistake: str) -> str:
    """Return what to do about a mistake, and how it is explained."""
    found = MISTAKES[mistake]
    return f"{found.title}: {found.mend} (oncelog prove --explain {mistake})"


def shared_ids(events: Sequence[Event]) -> list[str]:
    """Return the transactional ids that several instances use."""
    users: dict[str, set[int]] = {}
    for one in events:
        if one.transactional_id:
            users.setdefault(one.transactional_id, set()).add(one.instance)
    return sorted(one for one, instances in users.items() if len(instances) > 1)


class Trace:
    """The story that the requests of a failed trial tell. ``undisturbed`` are those of an undisturbed run."""

    def __init__(
        self, plan: ProofPlan, result: TrialResult, events: Sequence[Event], undisturbed: Sequence[Event]
    ) -> None:
        self.plan = plan
        self.result = result
        self.events = events
        self.undisturbed = undisturbed
        self.hits = [
            self._hit(one, at) for one, at in zip(result.disturbances, result.fired_at, strict=False)
        ]
        """The requests that were disturbed; None where the broker died at a write."""

    def _hit(self, disturbance: Disturbance, at_s: float) -> Event | None:
        if "on" not in disturbance.rule:
            return None
        found = [
            one
            for one in self.events
            if one.api == disturbance.rule["on"]
            and one.instance == disturbance.instance
            and one.at_s <= at_s + 0.001
        ]
        return found[-1] if found else None

    # -- what led to what

    def sends_of(self, output: Output, events: Sequence[Event] | None = None) -> list[tuple[Event, Record]]:
        """Return the Produce requests that carry an output."""
        return [
            (event, record)
            for event in (self.events if events is None else events)
            for record in event.records
            if output_of(self.plan, record) == output
        ]

    def input_of(self, output: Output) -> Record | None:
        """Return the input that an output is of: the only one whose value it contains, or the one that is the n-th of
        its key as the output is; None if that is not clear.
        """
        inputs = self.result.inputs
        sends = self.sends_of(output, self.undisturbed) or self.sends_of(output)
        content = sends[0][1].value if sends else None
        if content:
            within = [one for one in inputs if one.value and _is_in(one.value, content)]
            longest = [
                one for one in within if len(one.value or b"") == max(len(two.value or b"") for two in within)
            ]
            if len(longest) == 1:
                return longest[0]
        if sends and sends[0][1].key is not None:
            key = sends[0][1].key
            same = [one for one in inputs if one.key == key]
            outputs = list(
                dict.fromkeys(
                    output_of(self.plan, record)
                    for event in self.undisturbed
                    for record in event.records
                    if record.key == key and record.topic == output.topic
                )
            )
            if len(outputs) == len(same) and output in outputs:
                return same[outputs.index(output)]
        return None

    def commits_past(self, record: Record, events: Sequence[Event] | None = None) -> list[Event]:
        """Return the requests that committed an offset beyond an input, and had effect."""
        events = self.events if events is None else events
        return [
            event
            for event in events
            for (_, topic, partition), offset in event.committed.items()
            if topic == record.topic
            and partition == record.partition
            and offset > record.offset
            and not event.errors
            and not self._was_lost(event)
            and (event.transactional_id is None or _is_committed(event, events))
        ]

    def _was_lost(self, event: Event) -> bool:
        """Whether a request was never handled."""
        return any(
            hit is event and one.rule.get("drop_request") is not None
            for hit, one in zip(self.hits, self.result.disturbances, strict=False)
        )

    def name(self, event: Event) -> str:
        """Return a request's number, and the process if there were several."""
        who = (
            "" if len({(one.instance, one.run) for one in self.events}) == 1 else f" of {self.process(event)}"
        )
        return f"request {event.number}{who}"

    @staticmethod
    def process(event: Event) -> str:
        """Return which process sent a request."""
        return (
            f"instance {event.instance}, start {event.run}" if event.run > 1 else f"instance {event.instance}"
        )


def _transaction_of(event: Event, events: Sequence[Event]) -> list[Event]:
    """Return the requests of a request's transaction, the one that ends it among them."""
    found: list[Event] = []
    for one in events:
        if one.transactional_id != event.transactional_id:
            continue
        if one.api == "InitProducerId":
            if one.number > event.number:
                break
            found = []
            continue
        found.append(one)
        if one.api == "EndTxn":
            if one.number >= event.number:
                break
            found = []
    return found


def _is_committed(event: Event, events: Sequence[Event]) -> bool:
    """Return whether the transaction of a request was committed."""
    return bool(_transaction_of(event, events)[-1].is_commit)


def _is_in(value: bytes, content: bytes) -> bool:
    """Whether a value is in another one, not as the beginning of a longer number."""
    at = content.find(value)
    while at >= 0:
        end = at + len(value)
        if not (content[end : end + 1].isdigit() and value[-1:].isdigit()) and not (
            at and content[at - 1 : at].isdigit() and value[:1].isdigit()
        ):
            return True
        at = content.find(value, at + 1)
    return False


def explain(
    plan: ProofPlan,
    result: TrialResult,
    problems: Sequence[Problem],
    events: Sequence[Event],
    undisturbed: Sequence[Event],
) -> Explanation:
    """Return why a trial has its problems."""
    trace = Trace(plan, result, events, undisturbed)
    sentences: list[str] = []
    mistake: str | None = None
    for problem in problems:
        found, name = _of_problem(trace, problem)
        sentences += found
        mistake = mistake or name
    return Explanation(tuple(sentences), mistake)


def _of_problem(trace: Trace, problem: Problem) -> tuple[list[str], str | None]:
    if problem.kind in (LOST, CHANGED):
        return _of_lost(trace, problem)
    if problem.kind == DOUBLED:
        return _of_doubled(trace, problem)
    if problem.kind == REORDERED:
        return _of_reordered(trace, problem)
    if problem.kind == ABORTED_READ:
        return [
            f"the program fetches {topic} with isolation level read_uncommitted, and "
            f"{record_text(records[0])} belongs to a transaction that was aborted"
            for topic, records in trace.result.aborted_reads.items()
        ], "read-uncommitted"
    return (_of_stuck(trace) if problem.kind == STUCK else []), None


def _of_lost(trace: Trace, problem: Problem) -> tuple[list[str], str | None]:
    output = problem.outputs[0]
    record = trace.input_of(output)
    sends = trace.sends_of(output)
    commits = [] if record is None else trace.commits_past(record)
    what = output_text(output)
    sentences = []
    if alone := _acknowledged_alone(trace, sends):
        return [
            f"{what} was acknowledged ({trace.name(alone)}) by its leader alone (acks=1), "
            "which died before a follower had it"
        ], "acks-one"
    if behind := _acknowledged_behind(trace, sends):
        refused = sends[-1][0]
        return [
            f"{what} was refused ({trace.name(refused)}: {refused.result}), and the request behind it acknowledged "
            f"({trace.name(behind)}); {refused.result} is to be retried, and the client did not send it again: a fault "
            "of the client, not of the program"
        ], "refused-in-flight"
    if record is not None and commits:
        first = commits[0]
        place = f"offset {record.offset} of {record.topic}-{record.partition}"
        sentences.append(
            f"{place} was committed ({trace.name(first)}) {_before_its_send(trace, first, sends, what)}"
        )
    elif sends:
        event = sends[-1][0]
        sentences.append(f"{what} was sent ({trace.name(event)}: {event.result}), and never came again")
    else:
        sentences.append(f"{what} was never sent")
    return sentences, _mistake_of_lost(trace, sends, commits, record, output)


def _acknowledged_alone(trace: Trace, sends: Sequence[tuple[Event, Record]]) -> Event | None:
    """Return the request that a leader acknowledged without its followers, if one died."""
    if trace.plan.nodes == 1 or not trace.result.broker_ends:
        return None
    died_at_s = trace.result.broker_ends[-1]
    return next(
        (
            event
            for event, _ in sends
            if event.is_acknowledged and event.acks == 1 and event.at_s <= died_at_s
        ),
        None,
    )


def _acknowledged_behind(trace: Trace, sends: Sequence[tuple[Event, Record]]) -> Event | None:
    """Return a request that an idempotent producer had in flight behind that of a lost output, if the latter was
    refused with an error that clients retry, and this one acknowledged: the broker takes any first sequence of a
    producer that it does not know, and the client may take that for the acknowledgement of both.

    Source: https://github.com/confluentinc/confluent-kafka-go/issues/921
    """
    if not sends:
        return None
    refused, record = sends[-1]
    if record.producer_id < 0 or not refused.errors or not set(refused.errors) <= _RETRIED:
        return None
    return next(
        (
            one
            for one in trace.events
            if one.number > refused.number
            and one.is_acknowledged
            and any(
                (other.producer_id, other.topic, other.partition)
                == (record.producer_id, record.topic, record.partition)
                for other in one.records
            )
        ),
        None,
    )


def _before_its_send(trace: Trace, commit: Event, sends: Sequence[tuple[Event, Record]], what: str) -> str:
    acknowledged = [event for event, _ in sends if event.is_acknowledged]
    if not sends:
        return f"although {what}, which comes of it, was never sent: nobody reads it again"
    last = sends[-1][0]
    if acknowledged:
        ended = [
            one for one in trace.events if one.is_commit is False and one.number > acknowledged[0].number
        ]
        if ended:
            return (
                f"although the transaction with {what} ({trace.name(acknowledged[0])}) was aborted "
                f"({trace.name(ended[0])}): nobody reads it again"
            )
        return f"although {what} ({trace.name(acknowledged[0])}) is not in a committed transaction"
    return (
        f"before {what} was acknowledged ({trace.name(last)}: {last.result}): what came between loses it"
        if last.number > commit.number
        else f"although {what} was not written ({trace.name(last)}: {last.result})"
    )


def _mistake_of_lost(
    trace: Trace,
    sends: Sequence[tuple[Event, Record]],
    commits: Sequence[Event],
    record: Record | None,
    output: Output,
) -> str | None:
    then = {KINDS[one.kind].then for one in trace.result.disturbances}
    refused = [event for event, _ in sends if event.errors]
    aborted = [one for one in trace.events if one.is_commit is False]
    if refused and any(one.number > refused[0].number for one in aborted):
        return "abort-without-rewind"
    is_late = bool(refused) and (not commits or commits[0].number > refused[0].number)
    if is_late and not any(event.is_acknowledged for event, _ in sends):
        return "unread-errors"
    if aborted and sends:
        return "abort-without-rewind"
    if not commits or record is None:
        return "no-flush-at-exit" if Then.TERMINATE in then else None
    first = commits[0]
    before = trace.sends_of(output, trace.undisturbed)
    usual = trace.commits_past(record, trace.undisturbed)
    is_early = bool(before and usual and usual[0].number < before[0][0].number)
    following = [one for one in trace.events if one.number > first.number and one.instance == first.instance]
    leaves = [one for one in following[:4] if one.api in ("JoinGroup", "LeaveGroup")]
    if leaves and not is_early:
        return "no-flush-at-exit" if Then.TERMINATE in then else "commit-in-revoke"
    if first.api == "OffsetCommit" and any(one.transactional_id for one in trace.events):
        return "offsets-outside-transaction"
    if is_early:
        # It commits what others have to do first, whose results come between.
        lag = [
            one
            for one in trace.undisturbed
            if usual[0].number < one.number < before[0][0].number and (one.committed or one.api == "Produce")
        ]
        return "auto-commit-in-background" if lag else "offsets-before-work"
    if Then.TERMINATE in then and not sends:
        return "no-flush-at-exit"
    return "auto-commit-in-background" if not sends else "offsets-before-work"


def _of_doubled(trace: Trace, problem: Problem) -> tuple[list[str], str | None]:
    output = problem.outputs[0]
    sends = [(event, record) for event, record in trace.sends_of(output) if not event.errors]
    record = trace.input_of(output)
    sentences = []
    if len(sends) > 1:
        (first, one), (last, two) = sends[0], sends[-1]
        sentences.append(
            f"{output_text(output)} was written twice: by {trace.name(first)}{_at(one)} "
            f"and by {trace.name(last)}{_at(two)}"
        )
        if record is not None and first is not last:
            place = f"offset {record.offset} of {record.topic}-{record.partition}"
            commits = trace.commits_past(record)
            if not commits:
                sentences.append(f"{place} was never committed")
            elif commits[0].number > last.number:
                sentences.append(
                    f"{place} was committed only later ({trace.name(commits[0])}): what came between doubles it"
                )
            elif commits[0].number > first.number:
                sentences.append(f"{place} was committed between them ({trace.name(commits[0])})")
    else:
        sentences.append(f"{output_text(output)} came once more")
    return sentences, _mistake_of_doubled(trace, sends)


def _at(record: Record) -> str:
    return f" ({record.topic}-{record.partition}@{record.offset})" if record.offset >= 0 else ""


def _mistake_of_doubled(trace: Trace, sends: Sequence[tuple[Event, Record]]) -> str | None:
    events = trace.events
    ids = {one.transactional_id for one in events if one.transactional_id}
    written = [record for _, record in sends]
    if not ids:
        first = sends[0][0] if sends else None
        if first is not None and any(
            record.producer_id < 0
            and (event.instance, event.run) == (first.instance, first.run)
            and event is not first
            for event, record in sends
        ):
            return "resends-without-idempotence"
        return "two-writes"
    if written and not all(record.is_transactional for record in written):
        return "outside-transaction"
    if any(one.api == "OffsetCommit" and one.committed for one in events):
        return "offsets-outside-transaction"
    if shared_ids(trace.undisturbed):
        return "one-id-for-two"
    offsets = [one.number for one in events if one.api == "TxnOffsetCommit"]
    ended = [_transaction_of(event, events) for event, _ in sends if _is_committed(event, events)]
    if offsets and ended and not any(one.number in offsets for requests in ended for one in requests):
        return "offsets-outside-transaction"
    without = [one for one in events if one.api == "TxnOffsetCommit" and not one.member_id]
    if without and len(ids) > 1:
        return "new-id-without-group"
    if any(KINDS[one.kind].then is Then.TAKE_OVER for one in trace.result.disturbances):
        return "zombie"
    return "two-writes"


def _of_reordered(trace: Trace, problem: Problem) -> tuple[list[str], str | None]:
    sends = [(event, record) for one in problem.outputs for event, record in trace.sends_of(one)]
    shown = "; ".join(
        f"{trace.name(event)}: {record_text(record)}, {event.result}" for event, record in sends[:6]
    )
    is_plain = any(record.producer_id < 0 for _, record in sends)
    return [f"they were sent so: {shown}"], "resends-without-idempotence" if is_plain else None


def silent_members(result: TrialResult, events: Sequence[Event]) -> list[str]:
    """Return a sentence for each process that is a member of a group, and sends no heartbeats: clients do that in a
    thread of their own.
    """
    ended = {(end.instance, end.run) for end in result.ends}
    last = {(one.instance, one.run): one for one in events if one.api in _OF_MEMBERS}
    return [
        f"instance {one.instance} is a member of {', '.join(one.groups)} ({one.api}, request {one.number}), and sent "
        f"no heartbeat in the {result.duration_s - one.at_s:.0f} s after that: its client stands still, or the program "
        "holds up the client's loop"
        for process, one in last.items()
        if process not in ended
        and one.api != "LeaveGroup"
        and one.is_acknowledged
        and result.duration_s - one.at_s > SILENT_S
    ]


def unknown_topics(plan: ProofPlan, events: Sequence[Event]) -> list[str]:
    """Return a sentence about each topic that the program uses and that is none of the plan's."""
    names = dict.fromkeys(name for one in events for name in one.topics if name not in plan.topics)
    return [f"it uses topic {name!r}{meant(name, plan.topics)}" for name in names]


def why_nothing(plan: ProofPlan, events: Sequence[Event]) -> str:
    """Return why a program may have written nothing, to be added to that."""
    if unknown := unknown_topics(plan, events):
        return f": {'; '.join(unknown)}"
    if not any(one.brought_records for one in events):
        return ": it has read no record either; does it begin at the earliest offset (auto.offset.reset)?"
    return (
        ""
        if plan.until_exit
        else f" in {plan.quiet_s:g} s after it had read its input; --quiet S waits longer"
    )


def _of_stuck(trace: Trace) -> list[str]:
    """Return what was seen last, and whose silence it is."""
    result, events = trace.result, trace.events
    sentences = [str(end) for end in result.own_ends[-2:]] + silent_members(result, events)
    since = max([*result.fired_at, *result.broker_ends], default=0.0)
    later = [one for one in events if one.at_s > since]
    if result.broker_ends and not later:
        sentences.append(
            "the client sent nothing after the broker was there again: a fault of the client, not of the program"
        )
    elif later:
        last = later[-1]
        sentences.append(f"the last request was {last.text} ({trace.name(last)}: {last.result})")
    return sentences
