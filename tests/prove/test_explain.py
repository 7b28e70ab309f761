"""Why a trial failed, as its requests say."""

from __future__ import annotations

import pytest

from oncelog.broker.control.types import Record
from oncelog.broker.prove.disturbances import Disturbance
from oncelog.broker.prove.judging.clients import (
    CALLED,
    KAFKA_GO,
    KAFKAJS,
    LIBRDKAFKA,
    Client,
    called,
    known_for,
)
from oncelog.broker.prove.judging.clues import silent_members
from oncelog.broker.prove.judging.evidence import Evidence
from oncelog.broker.prove.judging.explain import explain
from oncelog.broker.prove.judging.judge import CHECK, DOUBLED, LOST, OFFSETS, STUCK, MovedOffset, Problem
from oncelog.broker.prove.judging.mistakes import MISTAKES
from oncelog.broker.prove.judging.outputs import output_of
from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.trials.history import Event
from oncelog.broker.prove.trials.program import ProcessEnd
from oncelog.broker.prove.trials.trial_result import TrialResult


def event(at_s: float, api: str, instance: int = 1, *errors: str) -> Event:
    return Event(int(at_s * 10), at_s, instance, 1, api, 4, "responded", errors, groups=("billing",))


def said(*events: Event, ended: tuple[ProcessEnd, ...] = ()) -> list[str]:
    result = TrialResult((), duration_s=20.0, ends=list(ended))
    return silent_members(result, sorted(events, key=lambda one: one.at_s))


def test_a_member_that_sends_no_heartbeat_is_named() -> None:
    [sentence] = said(event(1, "JoinGroup"), event(2, "SyncGroup"), event(2.5, "Metadata"))
    assert sentence.startswith(
        "instance 1 is a member of billing (SyncGroup, request 20), and sent no heartbeat in the 18 s after that: "
    )


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((event(2, "SyncGroup"), event(19, "Heartbeat")), id="it sends some"),
        pytest.param((event(2, "SyncGroup"), event(3, "LeaveGroup")), id="it has left"),
        pytest.param((event(2, "JoinGroup"),), id="it waits for the others"),
        pytest.param((event(2, "SyncGroup", 1, "UNKNOWN_MEMBER_ID"),), id="it is no member"),
    ],
)
def test_nobody_is_named_without_reason(events: tuple[Event, ...]) -> None:
    assert said(*events) == []


def test_each_instance_counts_by_itself_and_dead_ones_do_not() -> None:
    dead = ProcessEnd(1, 1, -9, 3.0, was_wanted=True, output="")
    assert said(event(2, "SyncGroup"), event(18, "Heartbeat", 2), ended=(dead,)) == []
    [sentence] = said(event(18, "Heartbeat"), event(2, "SyncGroup", 2), event(4, "Heartbeat", 2))
    assert sentence.startswith("instance 2 is a member of billing (Heartbeat, request 40)")


def in_transaction(at_s: float, api: str, *, commits: bool | None = None, offset: int | None = None) -> Event:
    found = event(at_s, api)
    found.transactional_id, found.is_commit = "bills", commits
    if offset is not None:
        found.committed = {("billing", "orders", 0): offset}
    return found


@pytest.mark.parametrize(
    ("end", "is_committed"),
    [
        pytest.param(in_transaction(3, "EndTxn", commits=True), True, id="committed"),
        pytest.param(in_transaction(3, "EndTxn", commits=False), False, id="aborted"),
        pytest.param(in_transaction(3, "InitProducerId"), False, id="the next process aborts it"),
    ],
)
def test_an_offset_is_committed_with_its_transaction(end: Event, is_committed: bool) -> None:
    """What a later transaction does says nothing of it."""
    sent = in_transaction(2, "TxnOffsetCommit", offset=1)
    later = [in_transaction(4, "Produce"), in_transaction(5, "EndTxn", commits=True)]
    plan = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))
    evidence = Evidence(plan, TrialResult(()), [in_transaction(1, "Produce"), sent, end, *later], ())
    assert evidence.commits_past(Record("orders", 0, 0, b"1", None)) == ([sent] if is_committed else [])


ORDERS = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))


def commit(at_s: float, offset: int, *errors: str) -> Event:
    found = event(at_s, "OffsetCommit", 1, *errors)
    found.committed = {("billing", "orders", 0): offset}
    return found


def why(problem: Problem, *events: Event, fired_at: float) -> tuple[tuple[str, ...], str | None]:
    result = TrialResult((), fired_at=[fired_at])
    explanation = explain(ORDERS, result, [problem], events, [commit(1, 1)])
    return explanation.sentences, explanation.mistake


@pytest.mark.parametrize(
    ("lines", "end", "mistake"),
    [
        (("+2|tea",), ": what it had done outside Kafka beyond that, it did again", "two-writes"),
        (("-2|tea",), ": what it had not done of that outside Kafka, nobody does", "offsets-before-work"),
        (("-30", "+40"), "", None),
    ],
)
def test_a_check_is_explained_by_what_was_committed_before(
    lines: tuple[str, ...], end: str, mistake: str | None
) -> None:
    problem = Problem(CHECK, "another output", lines=lines)
    found = why(problem, commit(1, 1), commit(3, 2), fired_at=2)
    before = "when that happened, the program had committed orders-0 up to 1 (request 10)"
    assert found == ((before + end,), mistake)


def test_offsets_are_explained_by_the_last_commit_and_by_one_that_failed() -> None:
    problem = Problem(OFFSETS, "elsewhere", offsets=(MovedOffset("billing", "orders", 0, 1, 2),))
    found = why(problem, commit(1, 1), commit(3, 2, "UNKNOWN_MEMBER_ID"), fired_at=2)
    assert found == (
        (
            "the last commit of orders-0 is request 10, of offset 1",
            "offset 2 was in request 30 (UNKNOWN_MEMBER_ID), and never came again",
        ),
        None,
    )


# -- the mistake that the requests show

INPUT = Record("orders", 0, 4, b"tea", b"7")
TAKEN_OVER = Disturbance("zombie before", {"on": "Produce", "nth": 1, "hold": True})


def produced(at_s: float, *errors: str, transactional: bool = False, run: int = 1) -> Event:
    found = event(at_s, "Produce", 1, *errors)
    found.run = run
    found.transactional_id = "bills" if transactional else None
    record = Record(
        "receipts", 0, -1 if errors else int(at_s), b"paid: tea", b"7", is_transactional=transactional
    )
    found.records = [record]
    return found


def transaction(at_s: float, offset: int, group: str = "billing") -> list[Event]:
    """One that writes the receipt, and commits that offset."""
    sent = in_transaction(at_s + 1, "TxnOffsetCommit")
    sent.committed, sent.member_id = {(group, "orders", 0): offset}, "m"
    return [
        produced(at_s, transactional=True),
        sent,
        in_transaction(at_s + 2, "EndTxn", commits=True),
    ]


def joined() -> Event:
    return event(0.5, "JoinGroup")


def mistake(kind: str, *events: Event, disturbances: tuple[Disturbance, ...] = ()) -> str | None:
    """The mistake behind a receipt that is lost or doubled."""
    result = TrialResult(disturbances, fired_at=[0.0] * len(disturbances), inputs=[INPUT])
    problem = Problem(kind, "a receipt", (output_of(ORDERS, produced(1).records[0]),))
    undisturbed = [produced(1), commit(2, 5)]
    return explain(ORDERS, result, [problem], events, undisturbed).mistake


def test_mistakes_that_double() -> None:
    assert mistake(DOUBLED, produced(1), produced(3, run=2), commit(4, 5)) == "two-writes"
    assert mistake(DOUBLED, joined(), *transaction(1, 4), *transaction(5, 5)) == "offset-of-the-record"
    assert mistake(DOUBLED, joined(), *transaction(1, 5, "another"), *transaction(5, 5)) is None
    assert mistake(DOUBLED, joined(), *transaction(1, 5), *transaction(5, 5)) is None
    assert mistake(DOUBLED, produced(1), produced(3, run=2), disturbances=(TAKEN_OVER,)) == "zombie"


def test_mistakes_that_lose() -> None:
    assert mistake(LOST, commit(1, 5)) == "auto-commit-in-background"
    assert mistake(LOST, produced(1, "INVALID_RECORD"), commit(2, 5)) == "unread-errors"
    assert mistake(LOST, produced(1, "PRODUCER_FENCED")) is None
    assert mistake(LOST, produced(1), commit(2, 5)) is None, "the broker acknowledged it"
    other = transaction(1, 5)
    other[0].records = [Record("receipts", 0, 1, b"paid: milk", b"7", is_transactional=True)]
    assert mistake(LOST, joined(), *other) is None, "another result is in its place"


# -- what a reader sees


def numbered(
    at_s: float, value: bytes, *, offset: int, sequence: int, partition: int = 0, instance: int = 1
) -> Event:
    """A record of a transactional producer, as the broker answered it."""
    found = in_transaction(at_s, "Produce")
    found.instance = instance
    key = b"7" if partition == 0 else None
    found.records = [
        Record(
            "receipts",
            partition,
            offset,
            value,
            key,
            producer_id=9,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=True,
        )
    ]
    return found


def explained(kind: str, value: bytes, *events: Event) -> tuple[tuple[str, ...], str | None]:
    result = TrialResult((), inputs=[INPUT, Record("orders", 0, 5, b"milk", b"7")])
    sample = produced(1)
    sample.records = [Record("receipts", 0, 1, value, b"7")]
    problem = Problem(kind, "a receipt", (output_of(ORDERS, sample.records[0]),))
    found = explain(ORDERS, result, [problem], events, [sample, commit(2, 6)])
    return found.sentences, found.mistake


def test_a_record_that_was_taken_for_a_repetition_is_lost_and_not_written() -> None:
    sent = in_transaction(3, "TxnOffsetCommit", offset=6)
    first, second = (
        numbered(1, b"paid: tea", offset=3, sequence=0),
        numbered(2, b"paid: milk", offset=3, sequence=0),
    )
    end = in_transaction(4, "EndTxn", commits=True)
    sentences, name = explained(LOST, b"paid: milk", joined(), first, second, sent, end)
    assert name == "sent-to-another-partition"
    assert sentences == (
        "receipts '7': 'paid: milk' was sent (request 20) with the sequence number of receipts-0@3 '7': 'paid: tea' "
        "(request 10): the broker took it for a repetition, acknowledged it and wrote nothing; a fault of the client, "
        "not of the program",
    )


def test_what_was_aborted_was_not_written() -> None:
    tries = [numbered(at, b"paid: tea", offset=at, sequence=at) for at in (1, 3, 5)]
    ends = [in_transaction(at + 1, "EndTxn", commits=at != 3) for at in (1, 3, 5)]
    events = [one for pair in zip(tries, ends, strict=True) for one in pair]
    sentences, _ = explained(DOUBLED, b"paid: tea", joined(), *events)
    assert sentences[0].endswith(
        " was written twice: by request 10 (receipts-0@1) and by request 50 (receipts-0@5)"
    )
    assert "request 30 (receipts-0@3) does not count: its transaction was not committed" in sentences


def test_a_record_without_acknowledgement_is_lost() -> None:
    sent = produced(1)
    sent.acks, sent.records = 0, [Record("receipts", 0, -1, b"paid: tea", b"7")]
    sentences, name = explained(LOST, b"paid: tea", joined(), sent, commit(2, 5))
    assert name == "acks-zero"
    assert (
        "was sent (request 10), and its producer does not hear of that: with acks=0 it asks" in sentences[0]
    )


def test_an_offset_that_was_asked_for_before_the_transactional_id() -> None:
    def other(at_s: float, api: str) -> Event:
        found = event(at_s, api, 2)
        found.transactional_id = "bills" if api == "InitProducerId" else None
        return found

    late = [
        numbered(6, b"paid: tea", offset=6, sequence=0, instance=2),
        in_transaction(7, "EndTxn", commits=True),
    ]
    first = transaction(2, 5)
    asked = [other(1, "OffsetFetch"), *first, other(5, "InitProducerId"), *late]
    sentences, name = explained(DOUBLED, b"paid: tea", *asked)
    assert name == "offset-before-id"
    assert sentences[-1] == (
        "instance 2 asked where to begin (request 10 of instance 2) before it asked for its transactional id "
        "(request 50 of instance 2), which ends what another one has open: the offset was old"
    )
    again = [other(0.5, "InitProducerId"), *asked]
    assert explained(DOUBLED, b"paid: tea", *again)[1] == "offset-before-id"
    in_order = [*first, other(4.6, "InitProducerId"), other(5, "OffsetFetch"), *late]
    assert explained(DOUBLED, b"paid: tea", *in_order)[1] != "offset-before-id"


def test_an_offset_is_committed_when_its_transaction_ends() -> None:
    """Another instance may write before that. A resend by one process has nothing to do with the commit."""
    other = produced(4)
    other.instance = 2
    written, sent, end = transaction(1, 5)
    late = in_transaction(6, "EndTxn", commits=True)
    sentences, _ = explained(DOUBLED, b"paid: tea", joined(), written, sent, other, late)
    assert sentences[1] == (
        "offset 4 of orders-0 was committed in a transaction (request 20 of instance 1) that ended only later (request "
        "60 of instance 1): instance 2 had begun before that"
    )
    sentences, _ = explained(DOUBLED, b"paid: tea", joined(), written, sent, end, other)
    assert sentences[1] == "offset 4 of orders-0 was committed between them (request 20 of instance 1)"
    sentences, _ = explained(DOUBLED, b"paid: tea", joined(), produced(1), produced(3), commit(4, 5))
    assert len(sentences) == 1, sentences


def test_an_offset_beyond_the_end() -> None:
    sentences, name = explained(LOST, b"paid: milk", joined(), produced(1), commit(2, 51))
    assert name == "offset-beyond-the-end"
    assert sentences[-1] == "offset 51 of orders-0 was committed (request 20), and it ends at 6"
    assert explained(LOST, b"paid: milk", joined(), produced(1), commit(2, 6))[1] != name


# -- the clients


def test_a_mend_is_called_otherwise_in_other_clients() -> None:
    clients = [Client(KAFKA_GO, "kafka-go"), Client("", "mine 1.0"), Client(LIBRDKAFKA, "rdkafka 2.16.1")]
    assert called("acks-zero", clients) == "; in kafka-go: RequiredAcks: kafka.RequireAll"
    assert called("two-writes", clients) == ""
    assert CALLED.keys() <= MISTAKES.keys()


def known(client: str, nodes: int, *events: Event) -> list[str]:
    """What is known of a client whose program is stuck after the response to a Produce got lost."""
    lost = Disturbance("lose response", {"on": "Produce", "nth": 1, "drop_response": "close"})
    plan = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",), nodes=nodes)
    evidence = Evidence(plan, TrialResult((lost,), fired_at=[0.0]), events, ())
    return known_for(evidence, Problem(STUCK, "it waits"), [Client(client, client)])


def test_what_a_client_is_known_for() -> None:
    [sentence] = known(LIBRDKAFKA, 1, produced(1))
    assert sentence.startswith("librdkafka forgets its only broker while that is away")
    assert known(LIBRDKAFKA, 3, produced(1)) == []
    [sentence] = known(KAFKAJS, 3, produced(1), event(2, "LeaveGroup"), event(3, "Heartbeat"))
    assert sentence.startswith("KafkaJS ends its consumer at an error that it does not retry")
    assert known(KAFKAJS, 3, produced(1)) == []
    assert known(LIBRDKAFKA, 3, produced(1), event(2, "LeaveGroup")) == []
