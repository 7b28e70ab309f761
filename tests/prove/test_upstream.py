"""`oncelog prove --upstream`: what is refused before anything runs, and a cluster that wants a log-in.

compat_tests/prove/test_upstream.py proves programs on a real Kafka.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

import oncelog
from tests.prove.test_command import GOOD, prove

pytestmark = pytest.mark.slow

NOWHERE = ("--upstream", "127.0.0.1:1")
BILL = """
from confluent_kafka import Consumer, Producer
import os

settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
reading = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer({**settings, **reading, "session.timeout.ms": 1500, "heartbeat.interval.ms": 200})
consumer.subscribe(["orders"])
producer = Producer(settings)
while True:
    order = consumer.poll(1)
    if order is not None and not order.error():
        consumer.commit(order, asynchronous=False)
        producer.produce("receipts", order.value())
        producer.flush()
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "orders.jsonl").write_text('{"key": "k", "value": "tea"}\n{"order": 2}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((*NOWHERE, "-c", "num.partitions=1"), "num.partitions is for a broker of oncelog"),
        (("--command-config", "file"), "--command-config is for a cluster, which --upstream names"),
        (("--upstream", "127.0.0.1:none"), "upstream=127.0.0.1:none: expected HOST:PORT"),
        ((*NOWHERE, "--from-snapshot", "file"), "a snapshot is for brokers of oncelog"),
        ((*NOWHERE, "--command-config", "none.properties"), "cannot read none.properties: No such file"),
        (NOWHERE, "the cluster at 127.0.0.1:1 cannot be used: NETWORK_EXCEPTION: 127.0.0.1:1: "),
    ],
)
def test_a_mistake_is_one_line(folder: pathlib.Path, options: tuple[str, ...], error: str) -> None:
    ended: subprocess.CompletedProcess[str] = prove(folder, *GOOD, *options, "--", "true")
    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"oncelog: {error}"), line


def test_what_a_cluster_cannot_take_is_not_repeated_there() -> None:
    dies = {"kind": "broker dies", "rule": {"crash_at": "before append", "topic": "receipts", "nth": 1}}
    with (
        oncelog.Broker() as cluster,
        pytest.raises(oncelog.InvalidArgumentError, match=r"cannot take this disturbance \(broker dies\)"),
    ):
        oncelog.prove(
            "true",
            topics=["orders", "receipts"],
            inputs={"orders": ["tea"]},
            outputs="receipts",
            upstream=cluster.bootstrap_servers,
            again=[dies],
        )


def test_a_program_is_proved_on_a_cluster_that_wants_a_log_in(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "bill.py"
    program.write_text(BILL)
    config = {"group.min.session.timeout.ms": 1000}
    with oncelog.Broker(users={"app": "app-secret"}, config=config) as cluster:

        def proof(login: Mapping[str, object]) -> oncelog.Verdict:
            return oncelog.prove(
                [sys.executable, str(program)],
                topics=["orders", "receipts"],
                inputs={"orders": ["tea", "cake"]},
                outputs="receipts",
                trials=5,
                upstream=cluster.bootstrap_servers,
                command_config=login,
            )

        with pytest.raises(oncelog.InvalidArgumentError, match="cannot be used"):
            proof({})
        verdict = proof(cluster.client_config("java", user="app"))
        assert (verdict.word, verdict.trials) == ("at most once", 5), verdict
        assert verdict.findings[0].mistake == "offsets-before-work"
        assert "app-secret" not in str(verdict.to_data())
        assert not cluster.topics
        assert not cluster.groups
