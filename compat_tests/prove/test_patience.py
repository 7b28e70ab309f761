"""A program that ends again and again, and looks as if it had nothing more to do meanwhile."""

from __future__ import annotations

import pathlib
import sys

import pytest

import oncelog
from compat_tests.prove.places import PROGRAMS

pytestmark = pytest.mark.slow

QUIET_S = 0.2
# After a restart it reads to the end, makes no receipt, and ends after five times as long as it must be quiet.
PROGRAM = f"""
import pathlib, time
from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import FOLDER

started = pathlib.Path(FOLDER, "started")
is_second = started.exists()
started.touch()
consumer = Consumer(CONSUMER)
producer = Producer(PRODUCER)
consumer.subscribe(["orders"])
while True:
    order = consumer.poll(1)
    if order is None or order.error():
        continue
    if is_second:
        time.sleep(5 * {QUIET_S})
        raise SystemExit("no receipt for this order")
    producer.produce("receipts", order.value())
    producer.flush()
    consumer.commit(order, asynchronous=False)
"""


def test_it_is_stuck(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has its time to catch up; after the last one it is not judged by what it has not written yet."""
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    (tmp_path / "app.py").write_text(PROGRAM)
    verdict = oncelog.prove(
        [sys.executable, str(tmp_path / "app.py")],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake"]},
        outputs="receipts",
        quiet=QUIET_S,
        trials=1,
        jobs=1,
    )
    [finding] = verdict.findings
    [problem] = finding.problems
    assert (verdict.word, problem.kind) == ("stuck", "stuck"), verdict.basis
    assert "ends again and again" in problem.text
    assert "no receipt for this order" in problem.text
