"""Crash points: the broker dies exactly there, and what a start finds is what docs/explanation/exactly-once.md says."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import oncelog
from oncelog.broker.control import snapshots
from oncelog.broker.faults.crash_point_names import CRASH_POINTS
from oncelog.broker.log.data_directory import partition_of
from oncelog.coordinator.transactions.state import TransactionState
from oncelog.wire.batch import read_header
from oncelog.wire.records import iterate_records
from oncelog.wire.stored.coordinator import decode_value
from oncelog.wire.stored.transactions import TransactionLogValue
from oncelog.wire.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "exactly-once.md"
GROUP = "billing"
PATIENCE_S = 60


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"orders": 2}) as broker:
        yield broker


def written(kafka: oncelog.Broker) -> list[str]:
    """What the disk has of the last transaction of the id app, in the words of the crash points."""
    files = snapshots.decode(kafka.snapshot_bytes(), "it").files
    moves: list[str] = []
    found: list[str] = []
    for path, content in sorted(files.items()):
        partition = partition_of(path.partition("/")[0])
        if partition is None or not path.endswith(".log") or partition[0].startswith("__cluster"):
            continue
        position = 0
        while position < len(content):
            header = read_header(content, position)
            if partition[0] == TRANSACTIONS_TOPIC:
                for record in iterate_records(content, header, offset=position):
                    assert record.value is not None
                    value = decode_value(record.value, TransactionLogValue)
                    assert isinstance(value, TransactionLogValue)
                    moves.append(TransactionState(value.transaction_status).label)
            elif header.is_control:
                found.append("marker")
            elif header.is_transactional:
                found.append("offsets" if partition[0] == OFFSETS_TOPIC else "append")
            position += header.size
    return [*moves[-1:], *sorted(found)]


POINTS = {point for point in CRASH_POINTS if not point.endswith("share state")}
"""Those of a transaction; `test_crash_points_share` tries the others."""
ALL = ["append", "append", "marker", "marker", "marker", "offsets"]
"""What a transaction with records in two partitions and with offsets writes, beside its moves."""

LEFT: dict[tuple[str, int], list[str]] = {
    ("before partitions", 1): ["Empty"],
    ("after partitions", 1): ["Ongoing"],
    ("before append", 2): ["Ongoing", "append"],
    ("after append", 2): ["Ongoing", "append", "append"],
    ("before offsets", 1): ["Ongoing", "append", "append"],
    ("after offsets", 1): ["Ongoing", "append", "append", "offsets"],
    ("before decision", 1): ["Ongoing", "append", "append", "offsets"],
    ("after decision", 1): ["PrepareCommit", "append", "append", "offsets"],
    ("before marker", 1): ["PrepareCommit", "append", "append", "offsets"],
    ("after marker", 1): ["PrepareCommit", "append", "append", "marker", "offsets"],
    ("before marker", 2): ["PrepareCommit", "append", "append", "marker", "offsets"],
    ("after marker", 3): ["PrepareCommit", *ALL],
    ("before completion", 1): ["PrepareCommit", *ALL],
    ("after completion", 1): ["CompleteCommit", *ALL],
    ("before response", 1): ["CompleteCommit", *ALL],
    ("after response", 1): ["CompleteCommit", *ALL],
}
"""Crash point, and the how many-th time it is come to -> what is on the disk then."""


def producer_of(kafka: oncelog.Broker) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "app",
            "transaction.timeout.ms": 900_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def transact(kafka: oncelog.Broker, producer: Producer) -> None:
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", b"v", partition=partition)
        assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP})
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 5)], metadata, PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    consumer.close()


def dies_meanwhile(kafka: oncelog.Broker, rule: Any, work: Callable[[], None]) -> list[str]:
    """Do the work in a thread until the rule kills the broker; start it again; return what it left on the disk."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        rule.wait_fired(timeout=PATIENCE_S)
        assert not kafka.is_running
        left = written(kafka)
    finally:
        kafka.start()
        thread.join()
    assert not errors
    assert rule.fired == 1
    return left


ON_DISK = [("after append", 2), ("before marker", 2), ("after response", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "nth", "on_disk"),
    [(*one, False) for one in LEFT] + [(*one, True) for one in ON_DISK],
    ids=lambda one: {True: "disk", False: "memory"}.get(one) if isinstance(one, bool) else str(one),
)
def test_the_broker_dies_there_and_the_client_goes_on(
    point: str, nth: int, on_disk: bool, tmp_path: Path
) -> None:
    with oncelog.Broker(topics={"orders": 2}, data_dir=tmp_path / "data" if on_disk else None) as kafka:
        producer = producer_of(kafka)
        rule = kafka.faults.crash_at(point, nth=nth)
        assert dies_meanwhile(kafka, rule, lambda: transact(kafka, producer)) == LEFT[point, nth]
        assert kafka.transactions["app"].state == "CompleteCommit"
        records = kafka.topic("orders").records(isolation="read_committed")
        assert [(record.partition, record.value) for record in records] == [(0, b"v"), (1, b"v")]
        assert kafka.group(GROUP).committed == {"orders": {0: 5}}


@pytest.mark.slow
def test_to_abort_is_a_decision_too(kafka: oncelog.Broker) -> None:
    producer = producer_of(kafka)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    rule = kafka.faults.crash_at("after decision")
    left = dies_meanwhile(kafka, rule, lambda: producer.abort_transaction(PATIENCE_S))
    assert left == ["PrepareAbort", "append"]
    assert kafka.transactions["app"].state == "CompleteAbort"
    assert kafka.topic("orders").records(isolation="read_committed") == []


def test_every_point_is_tried() -> None:
    assert {point for point, _ in LEFT} == POINTS


def test_the_document_has_every_point_in_its_row() -> None:
    section = DOCUMENT.read_text().partition("## What a start does after a crash")[2].partition("\n##")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    last_records = {
        (name, state)
        for row in rows
        for name in re.findall("`((?:before|after) [a-z]+)`", row[2])
        for state in re.findall("`([A-Z][a-z]+)…?`", row[3])
    }
    assert {name for name, _ in last_records} == POINTS
    for (point, _), (state, *_rest) in LEFT.items():
        assert any(
            (point, shown) in last_records
            for shown in ("Empty", "Ongoing", "Prepare", "Complete")
            if state.startswith(shown)
        ), point


# -- which of them


def test_what_a_filter_does_not_name_goes_on() -> None:
    with oncelog.Broker(topics={"orders": 2, "audit": 1}) as kafka:
        producer = producer_of(kafka)
        rules = [
            kafka.faults.crash_at("before append", topic="audit"),
            kafka.faults.crash_at("before append", partition=7),
            kafka.faults.crash_at("before append", transactional_id="somebody"),
            kafka.faults.crash_at("after partitions", transactional_id="somebody"),
            kafka.faults.crash_at("after decision", transactional_id="somebody"),
            kafka.faults.crash_at("after completion", transactional_id="somebody"),
            kafka.faults.crash_at("after offsets", group="others"),
            kafka.faults.crash_at("before marker", topic="audit"),
            kafka.faults.crash_at("after marker", nth=4),
            kafka.faults.crash_at("after response", transactional_id="somebody"),
            kafka.faults.crash_at("before response", on="DeleteTopics"),
        ]
        transact(kafka, producer)
        assert [rule.fired for rule in rules] == [0] * len(rules)
        assert rules[8].state.matched == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "filters", "left"),
    [
        (
            "before append",
            {"topic": "orders", "partition": 1, "transactional_id": "app"},
            ["Ongoing", "append"],
        ),
        ("after append", {"partition": [1, 2]}, ["Ongoing", "append", "append"]),
        (
            "after offsets",
            {"group": GROUP, "transactional_id": "app"},
            ["Ongoing", "append", "append", "offsets"],
        ),
        ("before marker", {"transactional_id": "app"}, ["PrepareCommit", "append", "append", "offsets"]),
        (
            "before response",
            {"on": "Produce", "topic": "orders", "partition": 1},
            ["Ongoing", "append", "append"],
        ),
        ("after response", {"on": ["TxnOffsetCommit"]}, ["Ongoing", "append", "append", "offsets"]),
        ("after response", {"transactional_id": "app"}, ["CompleteCommit", *ALL]),
    ],
    ids=str,
)
def test_filters_say_which(
    kafka: oncelog.Broker, point: str, filters: dict[str, Any], left: list[str]
) -> None:
    producer = producer_of(kafka)
    rule = kafka.faults.crash_at(point, **filters)
    assert dies_meanwhile(kafka, rule, lambda: transact(kafka, producer)) == left


@pytest.mark.slow
@pytest.mark.parametrize(("point", "requests"), [("before response", 2), ("after response", 1)])
def test_a_client_repeats_what_got_no_response(kafka: oncelog.Broker, point: str, requests: int) -> None:
    producer = producer_of(kafka)
    dies_meanwhile(kafka, kafka.faults.crash_at(point), lambda: transact(kafka, producer))
    assert len(kafka.requests(api="EndTxn")) == requests


@pytest.mark.slow
def test_writes_outside_of_transactions_count_too(kafka: oncelog.Broker) -> None:
    address = {"bootstrap.servers": kafka.bootstrap_servers}

    def produce() -> None:
        producer = Producer({**address, "enable.idempotence": True, "retry.backoff.ms": 10})
        for value in (b"1", b"2"):
            producer.produce("orders", value, partition=0)
            assert producer.flush(PATIENCE_S) == 0

    def commit() -> None:
        consumer = Consumer({**address, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()

    dies_meanwhile(kafka, kafka.faults.crash_at("after append", topic="orders"), produce)
    assert [record.value for record in kafka.topic("orders").records()] == [b"1", b"2"]
    dies_meanwhile(kafka, kafka.faults.crash_at("before offsets", group=GROUP), commit)
    assert kafka.group(GROUP).committed == {"orders": {0: 2}}


def test_it_happens_each_time_where_the_rule_says_always(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.add({"crash_at": "after append", "always": True})
    for times in (1, 2, 3):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": 0})
        producer.produce("orders", b"v", partition=0)
        producer.poll(0)
        rule.wait_fired(times, timeout=PATIENCE_S)
        producer.purge()
        with pytest.raises(
            oncelog.NotRunningError,
            match=r"died at rule 1 \(crash_at: after append, always: true\): start\(\) starts it again",
        ):
            _ = kafka.topics
        kafka.start()
    rule.remove()
    assert len(kafka.topic("orders").records()) == 3


def test_a_broker_that_died_leaves_nothing_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with oncelog.Broker(topics={"orders": 2}, data_dir=tmp_path / "data") as kafka:
        rule = kafka.faults.crash_at("after append")
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("orders", b"v", partition=0)
        producer.poll(0)
        rule.wait_fired(timeout=PATIENCE_S)
        producer.purge()
        del producer
        kafka.stop()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    left = set(os.listdir("/proc/self/fd")) - before
    assert not [fd for fd in left if str(tmp_path) in os.path.realpath(f"/proc/self/fd/{fd}")]
    with oncelog.Broker(data_dir=tmp_path / "data") as kafka:
        assert [record.value for record in kafka.topic("orders").records()] == [b"v"]


@pytest.mark.slow
def test_a_broker_in_a_child_process_dies_and_comes_back() -> None:
    with oncelog.Broker(topics={"orders": 2}, process=True) as kafka:
        producer = producer_of(kafka)
        rule = kafka.faults.crash_at("after marker", nth=2)
        left = dies_meanwhile(kafka, rule, lambda: transact(kafka, producer))
        assert left == ["PrepareCommit", "append", "append", "marker", "marker", "offsets"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"crash_at": "after decison"}, "unknown crash point 'after decison': did you mean after decision?"),
        ({"crash_at": 7}, "unknown crash point 7"),
        (
            {"crash_at": "after decision", "topic": "orders"},
            "crash_at after decision cannot be combined with topic",
        ),
        (
            {"crash_at": "after decision", "on": "EndTxn"},
            "crash_at after decision cannot be combined with on",
        ),
        (
            {"crash_at": "before append", "client_id": "a"},
            "crash_at before append cannot be combined with client_id",
        ),
        ({"crash_at": "before response", "on": "EndTx"}, "unknown API 'EndTx': did you mean EndTxn?"),
        ({"crash_at": "before response", "group": "g"}, "EndTxn names no group"),
        ({"crash_at": "before append", "topic": "order"}, "topic 'order' does not exist"),
        ({"crash_at": "before append", "hold": True}, "exclude each other"),
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_is_refused(
    kafka: oncelog.Broker, rule: dict[str, Any], message: str
) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=re.escape(message)):
        kafka.faults.add(rule)
    assert not kafka.faults.rules
