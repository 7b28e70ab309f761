"""Transactional producers of stock clients: records that readers see, fencing, the results of commit and abort."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from compat_tests.differential import Session, make_topic
from compat_tests.proxied import PROXY_CLUSTER
from compat_tests.transactions import wire
from compat_tests.transactions.java_worker import JavaWorker
from compat_tests.transactions.reader import committed, values

WAIT_S = 20


def confluent(bootstrap: str, transactional_id: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20_000,
            **more,
        }
    )


@pytest.mark.also_on("proxy")
def test_confluent_kafka(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name, 3)
    producer = confluent(bootstrap, name)
    producer.init_transactions(WAIT_S)
    for number in range(4):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(name, f"{number}-{partition}".encode(), partition=partition)
        if number == 2:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    expected = [f"{number}-{partition}" for number in (0, 1, 3) for partition in range(3)]
    assert values(bootstrap, name, 9, 3) == expected
    assert len(values(bootstrap, name, 12, 3, level="read_uncommitted")) == 12
    successor = confluent(bootstrap, name)
    producer.begin_transaction()
    producer.produce(name, b"zombie", partition=0)
    producer.flush(WAIT_S)
    successor.init_transactions(WAIT_S)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce(name, b"successor", partition=0)
    successor.commit_transaction(WAIT_S)
    assert values(bootstrap, name, 10, 3) == [*expected, "successor"]


@pytest.mark.slow
@pytest.mark.also_on("proxy")
def test_java(bootstrap: str, name: str, java_worker: Callable[[], JavaWorker]) -> None:
    """With transactions v2: a Produce adds its partition, and every end raises the epoch."""
    make_topic(bootstrap, name, 2)
    group = f"{name}-group"
    worker = java_worker()
    worker.new_producer("p", bootstrap, name, transaction_timeout_ms=20_000)
    assert worker.execute("init", "p") == "ok"
    for number in range(4):
        assert worker.execute("begin", "p") == "ok"
        for partition in range(2):
            assert worker.execute("send", "p", name, partition, f"{number}-{partition}").startswith("ok")
        assert worker.execute("offsets", "p", group, name, 0, number + 10) == "ok"
        assert worker.execute("abort" if number == 2 else "commit", "p") == "ok"
        assert committed(bootstrap, group, name, 11 if number == 2 else number + 10) == (
            11 if number == 2 else number + 10
        )
    # Empty transactions.
    for end in ("commit", "abort"):
        assert worker.execute("begin", "p") == "ok"
        assert worker.execute(end, "p") == "ok"
    expected = [f"{number}-{partition}" for number in (0, 1, 3) for partition in range(2)]
    assert values(bootstrap, name, 6, 2) == expected
    assert len(values(bootstrap, name, 8, 2, level="read_uncommitted")) == 8
    assert worker.execute("begin", "p") == "ok"
    assert worker.execute("send", "p", name, 0, "zombie").startswith("ok")
    worker.new_producer("q", bootstrap, name, transaction_timeout_ms=20_000)
    assert worker.execute("init", "q") == "ok"
    assert worker.execute("commit", "p") == "error ProducerFencedException"
    assert worker.execute("begin", "q") == "ok"
    assert worker.execute("send", "q", name, 0, "successor").startswith("ok")
    assert worker.execute("commit", "q") == "ok"
    assert values(bootstrap, name, 7, 2) == [*expected, "successor"]


@pytest.mark.slow
def test_a_java_producer_whose_transaction_timed_out(
    own_bootstrap: str, name: str, java_worker: Callable[[], JavaWorker]
) -> None:
    make_topic(own_bootstrap, name)
    worker = java_worker()
    worker.new_producer("p", own_bootstrap, name, transaction_timeout_ms=500)
    assert worker.execute("init", "p") == "ok"
    assert worker.execute("begin", "p") == "ok"
    assert worker.execute("send", "p", name, 0, "late").startswith("ok")
    session = Session(own_bootstrap)
    wire.Producer(session, name).wait_for("CompleteAbort")
    session.end()
    assert worker.execute("commit", "p") == "error InvalidTxnStateException"
    worker.new_producer("q", own_bootstrap, name, transaction_timeout_ms=5_000)
    assert worker.execute("init", "q") == "ok"
    assert worker.execute("begin", "q") == "ok"
    assert worker.execute("send", "q", name, 0, "in time").startswith("ok")
    assert worker.execute("commit", "q") == "ok"
    assert len(values(own_bootstrap, name, 1)) == 1


@pytest.mark.slow
@pytest.mark.also_on(PROXY_CLUSTER)
def test_open_transactions_over_restarts(
    own_broker: Callable[..., Any], java_worker: Callable[[], JavaWorker]
) -> None:
    """After a clean stop and after a kill, one open transaction commits and another aborts; both producers go on."""
    few = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    broker = own_broker(few)  # a start opens every partition of the internal topics
    make_topic(broker.bootstrap, "t", 2)
    worker = java_worker()
    for end in ("commit", "abort"):
        worker.new_producer(end, broker.bootstrap, end, transaction_timeout_ms=60_000)
        assert worker.execute("init", end) == "ok"
    expected = []
    for end_broker in (broker.stop, broker.kill):
        for end in ("commit", "abort"):
            assert worker.execute("begin", end) == "ok"
            for partition in range(2):
                assert worker.execute("send", end, "t", partition, f"before-{end}").startswith("ok")
        end_broker()
        broker.start()
        for end in ("commit", "abort"):
            assert worker.execute("send", end, "t", 0, f"after-{end}").startswith("ok")
            assert worker.execute(end, end) == "ok"
            assert worker.execute("begin", end) == "ok"
            assert worker.execute("send", end, "t", 1, f"next-{end}").startswith("ok")
            assert worker.execute("commit", end) == "ok"
        expected += ["before-commit"] * 2 + ["after-commit", "next-commit", "next-abort"]
        assert values(broker.bootstrap, "t", len(expected), 2) == sorted(expected)


@pytest.mark.also_on("proxy")
def test_kafka_python(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name)
    group = f"{name}-group"
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=20_000
    )
    try:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(name, b"%d" % number, partition=0)
            offsets = {PythonPartition(name, 0): OffsetAndMetadata(number + 10, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()
    assert values(bootstrap, name, 2) == ["0", "2"]
    assert committed(bootstrap, group, name, 12) == 12


@pytest.mark.also_on("proxy")
def test_aiokafka(bootstrap: str, name: str) -> None:
    """aiokafka uses the first version of every transactional request."""
    make_topic(bootstrap, name)
    group = f"{name}-group"

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=20_000
        )
        await producer.start()
        try:
            for number in range(3):
                await producer.begin_transaction()
                await producer.send_and_wait(name, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({AioPartition(name, 0): number + 10}, group)
                if number == 1:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    assert values(bootstrap, name, 2) == ["0", "2"]
    assert committed(bootstrap, group, name, 12) == 12
