"""A program that does not fail each time: one repeat that fails is enough for a finding."""

from __future__ import annotations

import pathlib
import sys

import pytest

import oncelog

pytestmark = pytest.mark.slow

# After a restart it skips an order without a receipt, in the runs that its last argument names.
PROGRAM = """
import os, pathlib, sys
from confluent_kafka import Consumer, Producer

folder, count_file, bad_runs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3].split(",")
is_bad = False
if (folder / "started").exists():
    count = int(count_file.read_text()) + 1 if count_file.exists() else 1
    count_file.write_text(str(count))
    is_bad = str(count) in bad_runs
(folder / "started").touch()
servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "metadata.recovery.strategy": "none"}
soon = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer({**servers, **soon, **group, "session.timeout.ms": 6000})
producer = Producer({**servers, **soon})
consumer.subscribe(["orders"])
while True:
    order = consumer.poll(1)
    if order is None or order.error():
        continue
    if not is_bad:
        producer.produce("receipts", order.value())
        producer.flush()
    is_bad = False
    consumer.commit(order, asynchronous=False)
"""


@pytest.mark.parametrize(
    ("bad_runs", "word", "unsteady"),
    [("1,3", "at most once", 0), ("1", "exactly once", 1)],
    ids=["fails again later", "never again"],
)
def test_a_trial_is_repeated(tmp_path: pathlib.Path, bad_runs: str, word: str, unsteady: int) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    verdict = oncelog.prove(
        [sys.executable, str(tmp_path / "app.py"), "{dir}", str(tmp_path / "count"), bad_runs],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake"]},
        outputs="receipts",
        trials=1,
        jobs=1,
    )
    assert (verdict.word, len(verdict.unsteady)) == (word, unsteady), verdict.basis
    [shown] = verdict.findings or verdict.unsteady
    assert [one.kind for one in shown.problems] == ["lost"]
    assert int((tmp_path / "count").read_text()) == (3 if verdict.findings else 4)
