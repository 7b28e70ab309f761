"""A job that ends with exit code 0 before all is done: what is missing is not lost, if its next start does it."""

from __future__ import annotations

import pathlib
import sys

import pytest

import oncelog

pytestmark = pytest.mark.slow

# Ends at the first receipt that is refused: {when} it commits the order.
PROGRAM = """
import os
from confluent_kafka import Consumer, KafkaError, Producer

servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry.backoff.ms": 20}
group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer({**servers, **group, "enable.partition.eof": True, "session.timeout.ms": 6000})
producer = Producer(servers)
consumer.subscribe(["orders"])
refused = []
while not refused:
    order = consumer.poll(60)
    if order.error() and order.error().code() == KafkaError._PARTITION_EOF:
        break
    if order.error():
        continue
    producer.produce("receipts", order.value(), on_delivery=lambda error, _: error and refused.append(error))
    producer.flush()
    if COMMITS:
        consumer.commit(order, asynchronous=False)
print(f"{len(refused)} refused", flush=True)
consumer.close()
"""


def prove(folder: pathlib.Path, commits: str) -> oncelog.Verdict:
    """Let the second receipt be refused."""
    (folder / "app.py").write_text(PROGRAM.replace("COMMITS", commits))
    rule = {"on": "Produce", "listener": "INSTANCE1", "nth": 2, "error": "INVALID_RECORD"}
    return oncelog.prove(
        [sys.executable, str(folder / "app.py")],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake", "pie"]},
        outputs="receipts",
        until_exit=True,
        again=[{"kind": "refuse for good", "rule": rule}],
    )


def test_it_is_unfinished(tmp_path: pathlib.Path) -> None:
    verdict = prove(tmp_path, "not refused")
    assert (verdict.word, verdict.promise) == ("unfinished", "broken"), verdict
    [problem] = verdict.findings[0].problems
    assert problem.text.startswith("the job ended with exit code 0 before all was done; 2 missing: ")
    assert "; offset 1 of orders-0 is next for group billing; started again, it goes on there" in problem.text


def test_what_it_has_committed_is_lost(tmp_path: pathlib.Path) -> None:
    verdict = prove(tmp_path, "True")
    assert verdict.word == "at most once", verdict
    unfinished, lost = verdict.findings[0].problems
    assert "; 1 missing: receipts 'pie'; offset 2 of orders-0 is next " in unfinished.text
    assert (lost.kind, lost.text) == ("lost", "1 missing: receipts 'cake'")
