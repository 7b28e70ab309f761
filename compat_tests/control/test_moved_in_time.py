"""Stock clients of a broker whose clock a test moves by days: what they see then, without waiting for it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

import oncelog

TIMEOUT_S = 20.0
QUICK = {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "300"}
ORDERS = {"orders": {"partitions": 2, "config": {"retention.ms": -1}}}
LIVE = ["confluent-classic", "confluent-consumer", "kafka-python"]


def until(condition: Callable[[], bool], poll: Callable[[], object]) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        poll()


def send(kafka: oncelog.Broker, topic: str, value: bytes = b"value") -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def offsets(kafka: oncelog.Broker, topic: str) -> tuple[int, int]:
    """The first and the end offset, as a client sees them."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
        return low, high
    finally:
        consumer.close()


# --- retention


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_retention_deletes(timestamps: str) -> None:
    topics = {"orders": {"config": {"message.timestamp.type": timestamps}}}
    with oncelog.Broker(topics=topics) as kafka:
        send(kafka, "orders")
        assert kafka.clock.advance(days=6) == []
        assert offsets(kafka, "orders") == (0, 1)
        happened = kafka.clock.advance(days=1, minutes=1)
        assert [str(one) for one in happened] == ["topic orders partition 0: 1 segment deleted by retention"]
        assert offsets(kafka, "orders") == (1, 1)
        # The client stamps the next record with its own time, which is seven days behind the broker's.
        send(kafka, "orders")
        assert kafka.clock.advance() == [] if timestamps == "LogAppendTime" else kafka.clock.advance() != []
        assert offsets(kafka, "orders") == ((1, 2) if timestamps == "LogAppendTime" else (2, 2))


# --- offsets


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_committed_offsets_of_an_empty_group_expire(client: str) -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        committed = _committed_by_confluent if client == "confluent" else _committed_by_kafka_python
        assert committed(kafka, 5) == 5
        kafka.clock.advance(days=6)
        assert committed(kafka, None) == 5
        assert "group billing: 1 offset expired" in [
            str(one) for one in kafka.clock.advance(days=1, minutes=1)
        ]
        assert committed(kafka, None) is None
        assert "billing" not in kafka.groups


def _committed_by_confluent(kafka: oncelog.Broker, commit: int | None) -> int | None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing"})
    try:
        if commit is not None:
            consumer.commit(offsets=[TopicPartition("orders", 0, commit)], asynchronous=False)
        [found] = consumer.committed([TopicPartition("orders", 0)], TIMEOUT_S)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


def _committed_by_kafka_python(kafka: oncelog.Broker, commit: int | None) -> int | None:
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as Partition

    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id="billing")
    try:
        partition = Partition("orders", 0)
        consumer.assign([partition])
        if commit is not None:
            consumer.commit({partition: OffsetAndMetadata(commit, "", -1)})
        found: int | None = consumer.committed(partition)
        return found
    finally:
        consumer.close()


# --- transactions


def test_a_transaction_times_out_and_confluent_kafka_is_fenced() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": "pay-7",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(TIMEOUT_S)
        [happened] = kafka.clock.advance(minutes=1, seconds=1)
        assert (happened.what, happened.about["transactional_id"]) == ("transaction timed out", "pay-7")
        assert kafka.topic("orders").records(isolation="read_committed") == []
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(TIMEOUT_S)
        error = refused.value.args[0]
        assert error.fatal() or error.txn_requires_abort(), error
        assert kafka.transactions["pay-7"].state == "CompleteAbort"


def test_a_transaction_times_out_and_kafka_python_is_fenced() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="pay-7", transaction_timeout_ms=60_000
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"value").get(TIMEOUT_S)
            kafka.transactions["pay-7"].expire()
            with pytest.raises(PythonKafkaError):
                producer.commit_transaction()
        finally:
            producer.close(timeout=0)
        assert kafka.topic("orders").records(isolation="read_committed") == []


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_producer_that_lives_goes_on_after_its_ids_have_expired(client: str) -> None:
    """The partition has forgotten its producer id, and the producer's next sequence number is not 0."""
    with oncelog.Broker(topics=["orders"], config={"producer.id.expiration.ms": 60_000}) as kafka:
        if client == "confluent":
            confluent = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})

            def write() -> None:
                confluent.produce("orders", b"value")
                assert confluent.flush(TIMEOUT_S) == 0

            close = confluent.flush
        else:
            python = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True)
            close = python.close

            def write() -> None:
                python.send("orders", b"value").get(TIMEOUT_S)

        try:
            write()
            assert [one.what for one in kafka.clock.advance(hours=1)] == ["producer expired"]
            write()
            write()
        finally:
            close()
        assert [record.value for record in kafka.topic("orders").records()] == [b"value"] * 3


def test_frozen_time_holds_up_no_client() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        kafka.clock.freeze()
        now_ms = kafka.clock.now_ms()
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer({**servers, "transactional.id": "pay-7"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.commit_transaction(TIMEOUT_S)
        for group in ("classic", "consumer"):
            consumer = Consumer(
                {**servers, "group.id": group, "group.protocol": group, "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            read: list[bytes | None] = []

            def poll(consumer: Consumer = consumer, read: list[bytes | None] = read) -> None:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    read.append(message.value())

            until(lambda read=read: bool(read), poll)  # type: ignore[misc]
            assert read == [b"value"]
            consumer.commit(asynchronous=False)
            consumer.close()
            assert kafka.group(group).committed == {"orders": {0: 2}}
        assert kafka.clock.now_ms() == now_ms


# --- members


@contextlib.contextmanager
def live_member(kafka: oncelog.Broker, kind: str) -> Iterator[tuple[Any, Callable[[], set[int]]]]:
    """A consumer that lives. Yields it, and a function that returns its partitions."""
    for partition in range(2):
        kafka.produce("orders", b"value", partition=partition)
    consumer: Any
    if kind == "kafka-python":
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="billing",
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
        )
    else:
        protocol = kind.removeprefix("confluent-")
        classic = {"heartbeat.interval.ms": 300} if protocol == "classic" else {}
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "billing",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                **classic,
            }
        )
        consumer.subscribe(["orders"])
    try:
        yield consumer, lambda: {row.partition for row in consumer.assignment()}
    finally:
        consumer.close()


@contextlib.contextmanager
def doomed_member(kafka: oncelog.Broker, protocol: str) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [kafka.bootstrap_servers, "billing", protocol, "orders"]
    with subprocess.Popen([sys.executable, "-m", "compat_tests.control.moved_member", *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()


def poll(consumer: Any) -> list[bytes | None]:
    """Wait for records a little while. Returns their values."""
    if isinstance(consumer, KafkaConsumer):
        # kafka-python 3.0.12 hangs for ever if its timeout passes while it joins. There is always something to read.
        found = [record.value for records in consumer.poll(10_000).values() for record in records]
        consumer.seek_to_beginning()
        return found
    message = consumer.poll(0.1)
    return [] if message is None or message.error() else [message.value()]


@pytest.mark.parametrize("kind", LIVE)
def test_a_dead_member_leaves_and_a_live_one_stays(kind: str) -> None:
    protocol = "consumer" if kind == "confluent-consumer" else "classic"
    with (
        oncelog.Broker(topics=ORDERS, config=QUICK) as kafka,
        live_member(kafka, kind) as (consumer, partitions),
        contextlib.ExitStack() as stack,
    ):
        group = kafka.group("billing")
        until(lambda: partitions() == {0, 1}, lambda: poll(consumer))
        doomed = stack.enter_context(doomed_member(kafka, protocol))

        def is_shared() -> bool:
            return len(group.members) == 2 and group.state == "Stable" and len(partitions()) == 1

        until(is_shared, lambda: poll(consumer))
        members = {member.client_id: member.member_id for member in group.members}
        doomed_id = members.pop("doomed")
        [live_id] = members.values()
        kafka.clock.advance(hours=5)  # both live
        assert {member.member_id for member in group.members} == {doomed_id, live_id}
        doomed.kill()
        doomed.wait()
        happened = kafka.clock.advance(days=7)
        assert [str(one) for one in happened] == [f"member {doomed_id} of group billing: session expired"]
        assert [member.member_id for member in group.members] == [live_id]
        until(lambda: partitions() == {0, 1}, lambda: poll(consumer))
        assert [member.member_id for member in group.members] == [live_id]
        assert group.state == "Stable"


@pytest.mark.parametrize("kind", LIVE)
def test_a_live_member_that_is_expired_comes_back(kind: str) -> None:
    with (
        oncelog.Broker(topics=ORDERS, config=QUICK) as kafka,
        live_member(kafka, kind) as (consumer, partitions),
    ):
        group = kafka.group("billing")
        until(lambda: partitions() == {0, 1}, lambda: poll(consumer))
        [member] = group.members
        assert [str(one) for one in group.expire_member(member.member_id)] == [
            f"member {member.member_id} of group billing: session expired"
        ]
        assert not group.members
        until(lambda: len(group.members) == 1 and group.state == "Stable", lambda: poll(consumer))
        assert kind == "confluent-consumer" or group.members[0].member_id != member.member_id
        # It reads on; librdkafka may hang if it is closed before that, while it comes back.
        kafka.produce("orders", b"after", partition=0)
        read: list[bytes | None] = []
        until(lambda: b"after" in read, lambda: read.extend(poll(consumer)))
