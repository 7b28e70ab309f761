"""A proof whose outputs the user judges: what differs, and why, is said as without a judge."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence

import pytest

import oncelog
from oncelog.broker.prove.judging.judge import JUDGED, LOST, Problem
from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.verdict import Finding, Verdict

PROGRAM = """
import os
from confluent_kafka import Consumer, Producer

servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry.backoff.ms": 20}
group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer({**servers, **group, "session.timeout.ms": 6000})
producer = Producer(servers)
consumer.subscribe(["orders"])
while True:
    order = consumer.poll(0.1)
    if order is None or order.error():
        continue
    consumer.commit(order, asynchronous=False)
    producer.produce("receipts", b"paid: " + order.value() + STAMP)
    producer.flush()
"""


def judged(folder: pathlib.Path, stamp: str) -> oncelog.Verdict:
    """Let it die when it has committed the second order, and has no receipt yet."""

    def count(inputs: Sequence[oncelog.Record], outputs: Mapping[str, Sequence[oncelog.Record]]) -> list[str]:
        receipts = outputs["receipts"]
        return [] if len(receipts) == len(inputs) else [f"{len(inputs)} orders, {len(receipts)} receipts"]

    (folder / "app.py").write_text(PROGRAM.replace("STAMP", stamp))
    rule = {"on": "OffsetCommit", "listener": "INSTANCE1", "nth": 2, "drop_response": "close"}
    return oncelog.prove(
        [sys.executable, str(folder / "app.py")],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake", "pie"]},
        outputs="receipts",
        judge=count,
        quiet=0.2,
        again=[{"kind": "kill after", "rule": rule}],
    )


@pytest.mark.slow
def test_the_outputs_say_what_the_judge_found(tmp_path: pathlib.Path) -> None:
    verdict = judged(tmp_path, 'b""')
    assert (verdict.word, verdict.promise) == ("at most once", "broken"), verdict
    [finding] = verdict.findings
    assert [one.text for one in finding.problems] == [
        "3 orders, 2 receipts",
        "1 missing: receipts 'paid: cake'",
    ]
    assert finding.mistake == "offsets-before-work"
    [client] = verdict.clients
    assert client.startswith("confluent-kafka-python ")
    assert f"  clients: {client}\n" in str(verdict)


@pytest.mark.slow
def test_outputs_that_differ_in_each_run_are_only_judged(tmp_path: pathlib.Path) -> None:
    verdict = judged(tmp_path, "str(os.getpid()).encode()")
    assert (verdict.word, verdict.promise) == ("lost and doubled", "broken"), verdict
    [finding] = verdict.findings
    assert [one.text for one in finding.problems] == ["3 orders, 2 receipts"]


def finding(*problems: Problem) -> Finding:
    return Finding((), problems, (), None, None, ())


def test_trials_that_a_judge_finds_alike_are_of_one_kind() -> None:
    few, many, other = (
        finding(Problem(JUDGED, text))
        for text in ("3 orders, 2 receipts", "3 orders, 4 receipts", "no order")
    )
    assert few.judged == many.judged != other.judged


def test_the_word_is_that_of_the_outputs_where_they_are_known() -> None:
    plan = ProofPlan(("app",), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))
    lost = finding(Problem(JUDGED, "2 receipts"), Problem(LOST, "1 missing"))
    assert Verdict(plan, trials=1, findings=[lost]).word == "at most once"
    assert (
        Verdict(plan, trials=1, findings=[finding(Problem(JUDGED, "2 receipts"))]).word == "lost and doubled"
    )
