"""Which of the `oncelog.broker.prove.judging.mistakes` the requests of a failed trial show.

For lost and for doubled outputs there is a table of patterns, from the special to the general: the first that fits
names the mistake.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from oncelog.broker.prove.disturbances import KINDS, RETRIABLE, Then
from oncelog.broker.prove.judging.clues import shared_ids
from oncelog.broker.prove.judging.transactions import is_committed, transaction_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.judging.evidence import Evidence
    from oncelog.broker.prove.judging.outputs import Output
    from oncelog.broker.prove.judging.writes import Send
    from oncelog.broker.prove.trials.history import Event

FENCED: Final = frozenset(
    ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID", "INVALID_TXN_STATE")
)
"""Errors of a producer that another one has replaced."""
_RETRIED: Final = frozenset(RETRIABLE.values())
LEAVES_WITHIN: Final = 4
"""A commit is one of a member that leaves if it does so within so many of its requests."""
BEYOND_END: Final = 2
"""An offset that is so much greater than that of the last record is beyond the end, and not the next one: the marker of
a transaction may follow the record.
"""


class LostOutput:
    """A lost output, and what the requests say of it."""

    def __init__(self, evidence: Evidence, output: Output) -> None:
        self.evidence = evidence
        self.output = output
        self.input = evidence.input_of(output)
        """The input that it is of; None if that is not clear."""
        self.sends = evidence.sends_of(output)
        self.commits = [] if self.input is None else evidence.commits_past(self.input)
        """The commits of offsets beyond that input."""
        self._aborts = [one for one in evidence.events if one.is_commit is False]
        self._refused = next(
            (event for event, _ in self.sends if event.errors and not FENCED & {*event.errors}), None
        )

    @cached_property
    def acknowledged_alone(self) -> Event | None:
        """The request that a leader acknowledged without its followers, if one died."""
        evidence = self.evidence
        if evidence.plan.nodes == 1 or not evidence.result.broker_ends:
            return None
        died_at_s = evidence.result.broker_ends[-1]
        return next(
            (
                event
                for event, _ in self.sends
                if event.is_acknowledged and event.acks == 1 and event.at_s <= died_at_s
            ),
            None,
        )

    @cached_property
    def acknowledged_behind(self) -> Event | None:
        """A request that an idempotent producer had in flight behind that of the output, if the latter was refused with
        an error that clients retry, and this one acknowledged: the broker takes any first sequence of a producer that
        it does not know, and the client may take that for the acknowledgement of both.

        Source: https://github.com/confluentinc/confluent-kafka-go/issues/921
        """
        if not self.sends:
            return None
        refused, record = self.sends[-1]
        if record.producer_id < 0 or not refused.errors or not set(refused.errors) <= _RETRIED:
            return None
        return next(
            (
                one
                for one in self.evidence.events
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

    @cached_property
    def taken_for_repetition(self) -> tuple[Event, Send] | None:
        """The request that carried it, and the earlier one, of another record, of which the broker took it for a
        repetition.
        """
        for event, record in self.sends:
            first = self.evidence.writes.original_of(event, record)
            if first is not None and (first[1].key, first[1].value) != (record.key, record.value):
                return event, first
        return None

    @property
    def unanswered(self) -> Event | None:
        """The request that carried it, here or undisturbed, and asked for no answer (acks=0)."""
        sends = [event for event, _ in self.sends]
        if not sends and self._usual[1] is not None and not self.is_always_early:
            sends.append(self._usual[1])
        return next((event for event in sends if event.acks == 0), None)

    @property
    def is_aborted_after_refusal(self) -> bool:
        """Whether its Produce was refused, and a transaction aborted after that."""
        return self._refused is not None and any(one.number > self._refused.number for one in self._aborts)

    @property
    def is_refused_and_passed(self) -> bool:
        """Whether its Produce was refused, and never acknowledged, its input was not committed before, and the program
        went on.
        """
        return (
            self._refused is not None
            and not any(
                (end.instance, end.run) == (self._refused.instance, self._refused.run)
                for end in self.evidence.result.own_ends
            )
            and (not self.commits or self.commits[0].number > self._refused.number)
            and not any(event.is_acknowledged for event, _ in self.sends)
        )

    @property
    def is_sent_and_aborted(self) -> bool:
        """Whether it was sent, and a transaction aborted."""
        return bool(self._aborts and self.sends)

    @property
    def is_left_to_time_out(self) -> bool:
        """Whether it was written in a transaction that the broker ended, and its program went on."""
        sends = [event for event, record in self.sends if self.evidence.writes.is_aborted(event, record)]
        ended = {(end.instance, end.run) for end in self.evidence.result.ends}
        return was_timed_out(self.evidence) and any(
            (event.instance, event.run) not in ended for event in sends
        )

    @property
    def was_asked_to_end(self) -> bool:
        """Whether the program got SIGTERM, and ended by itself: the signal alone would be a kill."""
        return _was_disturbed_by(self.evidence, Then.TERMINATE) and any(
            end.was_wanted and end.exit_code >= 0 for end in self.evidence.result.ends
        )

    @cached_property
    def _usual(self) -> tuple[Event | None, Event | None]:
        """The first commit beyond the input, and the first Produce of the output, in an undisturbed run."""
        undisturbed = self.evidence.undisturbed
        commits = [] if self.input is None else self.evidence.commits_past(self.input, undisturbed)
        sends = self.evidence.sends_of(self.output, undisturbed)
        return commits[0] if commits else None, sends[0][0] if sends else None

    @property
    def is_always_early(self) -> bool:
        """Whether undisturbed, too, the input is committed before the output is sent."""
        commit, send = self._usual
        return commit is not None and send is not None and commit.number < send.number

    @property
    def is_early(self) -> bool:
        """Whether it is so in this trial."""
        return self.commits[0].number < self.sends[0][0].number

    @property
    def does_others_between(self) -> bool:
        """Whether undisturbed, other outputs are sent, or offsets committed, between that commit and the output: it
        commits what others have to do first.
        """
        commit, send = self._usual
        return (
            commit is not None
            and send is not None
            and any(
                commit.number < one.number < send.number and (one.committed or one.api == "Produce")
                for one in self.evidence.undisturbed
            )
        )

    @property
    def is_committed_when_leaving(self) -> bool:
        """Whether the member that committed the input left its group, or joined it again, soon after."""
        first = self.commits[0]
        following = [
            one
            for one in self.evidence.events
            if one.number > first.number and one.instance == first.instance
        ]
        return any(one.api in ("JoinGroup", "LeaveGroup") for one in following[:LEAVES_WITHIN])

    @property
    def is_acknowledged_and_gone(self) -> bool:
        """Whether it was acknowledged outside of a transaction: no order of commits loses that. The broker may have
        taken it for a duplicate, because its client gave it used sequence numbers.
        """
        return any(event.is_acknowledged and not record.is_transactional for event, record in self.sends)

    @property
    def is_committed_with_another(self) -> bool:
        """Whether the transaction that committed the input has outputs, of which this is none: result and offset are
        held together, and the program came to another result.
        """
        return self.commits[0].transactional_id is not None and bool(self.others_committed)

    @property
    def others_committed(self) -> list[Record]:
        """The records that the transaction that committed the input has written."""
        evidence = self.evidence
        return [
            record
            for one in transaction_of(self.commits[0], evidence.events)
            for record in one.records
            if evidence.writes.is_visible(one, record)
        ]

    @property
    def is_committed_beside_transactions(self) -> bool:
        """Whether the input was committed by a plain OffsetCommit, although there are transactions."""
        return self.commits[0].api == "OffsetCommit" and any(
            one.transactional_id for one in self.evidence.events
        )


_OF_LOST: Final[tuple[tuple[Callable[[LostOutput], object], str | None], ...]] = (
    (lambda it: it.unanswered, "acks-zero"),
    (lambda it: it.acknowledged_alone, "acks-one"),
    (lambda it: it.acknowledged_behind, "refused-in-flight"),
    (lambda it: it.taken_for_repetition, "sent-to-another-partition"),
    (lambda it: beyond_end(it.evidence), "offset-beyond-the-end"),
    (lambda it: it.is_aborted_after_refusal, "abort-without-rewind"),
    (lambda it: it.is_refused_and_passed, "unread-errors"),
    (lambda it: it.is_sent_and_aborted or it.is_left_to_time_out, "abort-without-rewind"),
    (lambda it: not it.commits and it.was_asked_to_end, "no-flush-at-exit"),
    (lambda it: not it.commits, None),
    # From here on, the input was committed.
    (lambda it: it.is_acknowledged_and_gone, None),
    (lambda it: it.is_committed_with_another, None),
    (
        lambda it: not it.is_always_early and it.is_committed_when_leaving and it.was_asked_to_end,
        "no-flush-at-exit",
    ),
    (lambda it: not it.is_always_early and it.is_committed_when_leaving, "commit-in-revoke"),
    (lambda it: it.is_committed_beside_transactions, "offsets-outside-transaction"),
    (lambda it: it.is_always_early and it.does_others_between, "auto-commit-in-background"),
    (lambda it: it.is_always_early, "offsets-before-work"),
    (lambda it: not it.sends and it.was_asked_to_end, "no-flush-at-exit"),
    (lambda it: not it.sends or it.is_early, "auto-commit-in-background"),
    (lambda it: True, "offsets-before-work"),
)


def mistake_of_lost(lost: LostOutput) -> str | None:
    """Return the name of the mistake that loses an output; None if the requests show none."""
    return next(name for fits, name in _OF_LOST if fits(lost))


class DoubledOutput:
    """A doubled output, and what the requests say of it."""

    def __init__(self, evidence: Evidence, output: Output) -> None:
        self.evidence = evidence
        self.output = output
        self.input = evidence.input_of(output)
        """The input that it is of; None if that is not clear."""
        sends, writes = evidence.sends_of(output), evidence.writes
        visible = [one for one in sends if writes.is_visible(*one)]
        possible = [one for one in sends if not one[0].errors and writes.may_be_visible(*one)]
        self.sends = visible if len(visible) > 1 else possible
        """The requests that wrote it; where the broker did not answer all, those that may have."""
        self.aborted = [one for one in sends if evidence.writes.is_aborted(*one)]
        """Those that wrote it in a transaction that was not committed."""
        self.is_known = bool(evidence.sends_of(output, evidence.undisturbed))
        """Whether undisturbed runs have it, too."""
        self._ids = {one.transactional_id for one in evidence.events if one.transactional_id}
        self._in_transactions = [one for one in evidence.events if one.api == "TxnOffsetCommit"]

    @property
    def is_of_a_zombie_without_commits(self) -> bool:
        """Whether an instance was replaced, and went on, and no offsets are committed in Kafka: they are elsewhere."""
        return was_taken_over(self.evidence) and not any(one.committed for one in self.evidence.events)

    @property
    def has_transactions(self) -> bool:
        """Whether the program has transactions."""
        return bool(self._ids)

    @property
    def is_sent_again_by_one(self) -> bool:
        """Whether the process that sent it first, without idempotence, sent it again."""
        if not self.sends:
            return False
        first = self.sends[0][0]
        return any(
            record.producer_id < 0
            and (event.instance, event.run) == (first.instance, first.run)
            and event is not first
            for event, record in self.sends
        )

    @property
    def is_sent_to_another_partition(self) -> bool:
        """Whether the producer that wrote it, and numbers its records, sent it again to another partition."""
        if len(self.sends) < 2:
            return False
        (first, one), (_, two) = self.sends[0], self.sends[-1]
        return (
            one.producer_id >= 0
            and (one.topic, one.producer_id, one.producer_epoch)
            == (two.topic, two.producer_id, two.producer_epoch)
            and one.partition != two.partition
            and self.sends[-1][0] in self.evidence.of_process(first)
            and (not one.is_transactional or self.sends[-1][0] in transaction_of(first, self.evidence.events))
        )

    @cached_property
    def read_before_its_id(self) -> tuple[Event, Event] | None:
        """The requests with which the process that wrote it last asked where to begin, and, later, for its
        transactional id, if what was written first was committed after the former.
        """
        if len(self.sends) < 2:
            return None
        first, last = self.sends[0][0], self.sends[-1][0]
        process = self.evidence.of_process(last)
        end = transaction_of(first, self.evidence.events)[-1:]
        read = next((one for one in process if one.api == "OffsetFetch"), None)
        inits = [one for one in process if one.api == "InitProducerId" and one.number < last.number]
        init = inits[-1] if inits else None
        is_fenced = first.transactional_id is not None and first.transactional_id == last.transactional_id
        if read is None or init is None or not end or not is_fenced:
            return None
        return (read, init) if read.number < init.number and read.number < end[0].number else None

    @property
    def is_written_outside(self) -> bool:
        """Whether it was written outside of a transaction."""
        return not all(record.is_transactional for _, record in self.sends)

    @property
    def are_offsets_outside(self) -> bool:
        """Whether offsets are committed outside of the transactions, or in others than the outputs."""
        if any(one.api == "OffsetCommit" and one.committed for one in self.evidence.events):
            return True
        offsets = {one.number for one in self._in_transactions}
        ended = [
            transaction_of(event, self.evidence.events)
            for event, _ in self.sends
            if is_committed(event, self.evidence.events)
        ]
        return bool(offsets and ended) and not any(
            one.number in offsets for requests in ended for one in requests
        )

    @property
    def has_shared_id(self) -> bool:
        """Whether undisturbed, instances have one transactional id."""
        return bool(shared_ids(self.evidence.undisturbed))

    @property
    def has_new_ids_without_group(self) -> bool:
        """Whether there are several transactional ids, and offsets without the group's metadata."""
        return len(self._ids) > 1 and any(not one.member_id for one in self._in_transactions)

    @cached_property
    def offsets_with_it(self) -> list[tuple[Event, str, int]]:
        """What the transaction that wrote it first commits of its input's partition: the request, the group and the
        offset.
        """
        if self.input is None or not self.sends or not self.sends[0][1].is_transactional:
            return []
        return [
            (one, group, offset)
            for one in transaction_of(self.sends[0][0], self.evidence.events)
            for (group, topic, partition), offset in one.committed.items()
            if (topic, partition) == (self.input.topic, self.input.partition)
        ]

    @property
    def own_offset(self) -> Event | None:
        """The request that commits its input's own offset, not the next one."""
        return next(
            (one for one, _, offset in self.offsets_with_it if self.input and offset == self.input.offset),
            None,
        )

    @property
    def other_group(self) -> tuple[Event, str] | None:
        """The request that commits its offset for a group in which the program does not read, and that group."""
        joined = self.evidence.groups_joined
        return next(
            ((one, group) for one, group, _ in self.offsets_with_it if joined and group not in joined), None
        )


def was_taken_over(evidence: Evidence) -> bool:
    """Return whether an instance was replaced, and went on."""
    return _was_disturbed_by(evidence, Then.TAKE_OVER)


def was_timed_out(evidence: Evidence) -> bool:
    """Return whether a transaction was ended by its time-out."""
    return _was_disturbed_by(evidence, Then.EXPIRE_TRANSACTION)


def _was_disturbed_by(evidence: Evidence, then: Then) -> bool:
    return any(KINDS[one.kind].then is then for one in evidence.result.disturbances)


def beyond_end(evidence: Evidence) -> tuple[Event, str, int, int] | None:
    """Return a commit of an offset beyond the end of an input: the request, the topic, the partition and the offset."""
    for one in evidence.events:
        for (_, topic, partition), offset in one.committed.items():
            end = evidence.end_of(topic, partition)
            if end is not None and offset >= end + BEYOND_END and evidence.had_effect(one):
                return one, topic, partition, offset
    return None


_OF_DOUBLED: Final[tuple[tuple[Callable[[DoubledOutput], object], str | None], ...]] = (
    (lambda it: it.is_sent_to_another_partition, "sent-to-another-partition"),
    (lambda it: beyond_end(it.evidence), "offset-beyond-the-end"),
    (lambda it: not it.has_transactions and it.is_sent_again_by_one, "resends-without-idempotence"),
    (lambda it: not it.has_transactions and it.is_of_a_zombie_without_commits, "zombie"),
    (lambda it: not it.has_transactions, "two-writes"),
    (lambda it: it.is_written_outside, "outside-transaction"),
    (lambda it: it.has_shared_id, "one-id-for-two"),
    (lambda it: it.own_offset, "offset-of-the-record"),
    (lambda it: it.other_group, None),
    (lambda it: it.are_offsets_outside, "offsets-outside-transaction"),
    (lambda it: it.read_before_its_id, "offset-before-id"),
    (lambda it: it.has_new_ids_without_group, "new-id-without-group"),
    (lambda it: was_taken_over(it.evidence), "zombie"),
    (lambda it: it.offsets_with_it, None),
    (lambda it: True, "two-writes"),
)


def mistake_of_doubled(doubled: DoubledOutput) -> str | None:
    """Return the name of the mistake that doubles an output; None if the requests show none."""
    return next(name for fits, name in _OF_DOUBLED if fits(doubled))


def mistake_of_reordered(sends: Sequence[tuple[Event, Record]]) -> str | None:
    """Return the name of the mistake that reorders outputs, which were sent so; None if the requests show none."""
    is_plain = any(record.producer_id < 0 for _, record in sends)
    return "resends-without-idempotence" if is_plain else None
