"""The Java client's transactional producer under fault rules: it repeats what was lost, and waits for errors that
pass.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog
from compat_tests.differential import make_topic
from compat_tests.targets import OURS_ON_TARGETS
from compat_tests.transactions.java_worker import JavaWorker
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import PROPERTIES, RealKafka

pytestmark = pytest.mark.slow

SHORT_SESSIONS = {"group.min.session.timeout.ms": "1000"}
"""The program's consumer has such a one."""


@pytest.fixture(scope="module")
def java(java_transactions: pathlib.Path) -> Iterator[JavaWorker]:
    worker = JavaWorker(java_transactions)
    yield worker
    worker.end()


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"]) as broker:
        yield broker


def transact(java: JavaWorker, kafka: oncelog.Broker, name: str) -> None:
    """Commit two transactions, with offsets."""
    java.new_producer(name, kafka.bootstrap_servers, "tx", retry_backoff_ms=20, reconnect_backoff_ms=20)
    commands: list[tuple[Any, ...]] = [("init", name)]
    for number in range(2):
        commands += [
            ("begin", name),
            ("send", name, "t", 0, f"v{number}"),
            ("offsets", name, "g", "t", 0, number),
            ("commit", name),
        ]
    for command in commands:
        assert java.execute(*command).split()[0] == "ok", (command, java.output()[-2000:])
    java.execute("close", name)


def check(kafka: oncelog.Broker) -> None:
    values = [record.value for record in kafka.topic("t").records(isolation="read_committed")]
    assert values == [b"v0", b"v1"]
    assert kafka.group("g").committed == {"t": {0: 1}}
    kafka.faults.assert_all_fired()


@contextlib.contextmanager
def journalled(target: str, topic: str) -> Iterator[oncelog.Broker | oncelog.Proxy]:
    """oncelog, or a proxy before a real Kafka, with the topic."""
    if target == "oncelog":
        with oncelog.Broker(topics=[topic], config=SHORT_SESSIONS) as broker:
            yield broker
        return
    try:
        with RealKafka({**PROPERTIES, **SHORT_SESSIONS}) as kafka, oncelog.Proxy(kafka.bootstrap) as proxy:
            make_topic(kafka.bootstrap, topic)
            yield proxy
    except RealPartMissing as missing:
        require(str(missing))


@pytest.mark.parametrize("target", OURS_ON_TARGETS)
def test_a_program_that_reads_and_writes_one_topic_commits_by_its_id(
    target: str, java_transactions: pathlib.Path
) -> None:
    """The client of Kafka 4.4 names topics by id if its producer knows the ids of all of them."""
    program = JavaWorker(java_transactions)
    with journalled(target, "echo") as kafka:
        try:
            assert program.execute("transform", kafka.bootstrap_servers, "echo", "echo", "g", "tx") == "ok"
            producer = Producer({**kafka.client_config(), "log_level": 0})
            producer.produce("echo", b"again and again")
            assert producer.flush(30) == 0
            last = None
            for _ in range(5):
                last = kafka.wait_for("TxnOffsetCommit", group="g", error=None, after=last)
                kafka.wait_for("EndTxn", transactional_id="tx", after=last)
            assert last is not None
            assert (last.version, last.topics, last.errors) == (6, ("echo",), ())
        finally:
            program.end(kill=True)
        assert kafka.group("g").committed["echo"][0] > last.body.topics[0].partitions[0].committed_offset - 2


@pytest.mark.parametrize("action", ["drop_response", "drop_request", "duplicate"])
@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_what_is_lost_is_repeated(kafka: oncelog.Broker, java: JavaWorker, api: str, action: str) -> None:
    getattr(kafka.faults.on(api, transactional_id="tx").nth(2), action)()
    transact(java, kafka, f"{api}-{action}")
    check(kafka)


@pytest.mark.parametrize(
    ("api", "filters", "error"),
    [
        ("ApiVersions", {}, "UNSUPPORTED_VERSION"),
        ("Metadata", {"topic": "t"}, "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", {"transactional_id": "tx"}, "COORDINATOR_NOT_AVAILABLE"),
        ("FindCoordinator", {"group": "g"}, "COORDINATOR_NOT_AVAILABLE"),
        ("InitProducerId", {"transactional_id": "tx"}, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("Produce", {"topic": "t", "partition": 0}, "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", {}, "NOT_ENOUGH_REPLICAS"),
        ("TxnOffsetCommit", {"group": "g"}, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("TxnOffsetCommit", {"topic": "t"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("EndTxn", {}, "NOT_COORDINATOR"),
    ],
)
def test_an_error_that_passes_is_waited_for(
    kafka: oncelog.Broker, java: JavaWorker, api: str, filters: dict[str, Any], error: str
) -> None:
    kafka.faults.on(api, **filters).first(1).error(error)
    transact(java, kafka, f"{api}-{error}-{len(filters)}-{next(iter(filters), '')}")
    check(kafka)


def test_without_transactions_v2_too(java: JavaWorker) -> None:
    with oncelog.Broker(topics=["t"], version="3.9") as kafka:
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"):
            kafka.faults.on(api, transactional_id="tx").nth(1).drop_response()
            kafka.faults.on(api, transactional_id="tx").nth(3).error("COORDINATOR_NOT_AVAILABLE")
        kafka.faults.on("AddPartitionsToTxn", topic="t").nth(4).error("CONCURRENT_TRANSACTIONS")
        transact(java, kafka, "classic")
        check(kafka)
