"""The nodes of a trial: three, as in production, unless the caller says otherwise."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

import oncelog
from oncelog.broker.prove.disturbances import KINDS

pytestmark = pytest.mark.slow

COUNTS = """
import os
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
producer.produce("receipts", str(len(producer.list_topics(timeout=10).brokers)))
producer.flush()
"""
# Asks for the nodes without a pause while it sends receipts, and sends the smallest number that it saw.
WATCHES = """
import os, threading
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
settings |= {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
producer, admin = Producer({**settings, "retry.backoff.ms": 20}), AdminClient(settings)
seen, is_over = {3}, threading.Event()


def watch():
    while not is_over.is_set():
        seen.add(len(admin.list_topics(timeout=10).brokers))


watching = threading.Thread(target=watch)
watching.start()
for number in range(30):
    producer.produce("receipts", str(number))
    producer.flush()
is_over.set()
watching.join()
producer.produce("receipts", f"at least {min(seen)} nodes")
producer.flush()
"""


def prove(folder: pathlib.Path, source: str, **options: Any) -> oncelog.Verdict:
    (folder / "app.py").write_text(source)
    given: dict[str, Any] = {
        "topics": ["orders", "receipts"],
        "inputs": {"orders": ["tea"]},
        "outputs": "receipts",
    }
    return oncelog.prove([sys.executable, str(folder / "app.py")], until_exit=True, **given, **options)


@pytest.mark.parametrize(("nodes", "seen"), [(None, b"3"), (1, b"1")])
def test_a_program_sees_three_nodes_or_as_many_as_are_asked_for(
    tmp_path: pathlib.Path, nodes: int | None, seen: bytes
) -> None:
    def judge(
        inputs: Sequence[oncelog.Record], outputs: Mapping[str, Sequence[oncelog.Record]]
    ) -> Iterable[str]:
        return [f"it saw {one.value!r} nodes" for one in outputs["receipts"] if one.value != seen]

    verdict = prove(tmp_path, COUNTS, nodes=nodes, judge=judge, trials=1)
    assert (verdict.reason, verdict.trials) == (None, 1)
    assert ("with a single node" in verdict.basis) == (nodes == 1)


def test_a_node_that_dies_and_comes_back_does_not_leave_the_cluster_meanwhile(tmp_path: pathlib.Path) -> None:
    word, value = KINDS["node dies after"].action
    rule = {"on": "Produce", "listener": "INSTANCE1", "nth": 5, word: value}
    again = [{"kind": "node dies after", "rule": rule}]
    verdict = prove(tmp_path, WATCHES, again=again, promise="at-least-once")
    assert (verdict.promise, verdict.not_met) == ("kept", []), verdict
