"""Stock consumers whose requests are refused once, with an error that passes: they read and commit all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka as kafka_python
import pytest

import oncelog

DEADLINE_S = 20
RECORDS = [b"1", b"2", b"3"]


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"]) as broker:
        for value in RECORDS:
            broker.produce("t", value)
        yield broker


def messages(consumer: confluent_kafka.Consumer) -> Iterator[confluent_kafka.Message]:
    """Records; errors are left out. Raises TimeoutError when none has come for `DEADLINE_S`."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            yield message
            until = time.monotonic() + DEADLINE_S
    raise TimeoutError


def confluent(kafka: oncelog.Broker, **settings: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "fetch.error.backoff.ms": 20,
            "retry.backoff.ms": 20,
        }
        | settings
    )
    seen: list[bytes | None] = []
    try:
        consumer.subscribe(["t"])
        for message in messages(consumer):
            seen.append(message.value())
            if len(seen) == len(RECORDS):
                break
        consumer.commit(asynchronous=False)
        return seen
    finally:
        consumer.close()


def confluent_classic(kafka: oncelog.Broker) -> list[bytes | None]:
    return confluent(kafka)


def of_kafka_python(kafka: oncelog.Broker) -> list[bytes | None]:
    consumer = kafka_python.KafkaConsumer(
        "t",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=DEADLINE_S * 1000,
        retry_backoff_ms=20,
    )
    try:
        seen: list[bytes | None] = []
        for message in consumer:
            seen.append(message.value)
            if len(seen) == len(RECORDS):
                break
        consumer.commit()
        return seen
    finally:
        consumer.close()


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("Metadata", {"topic": "t"}, "LEADER_NOT_AVAILABLE"),
    ("FindCoordinator", {"group": "g"}, "COORDINATOR_NOT_AVAILABLE"),
    ("JoinGroup", {"group": "g"}, "COORDINATOR_LOAD_IN_PROGRESS"),
    ("JoinGroup", {"group": "g"}, "NOT_COORDINATOR"),
    ("SyncGroup", {"group": "g"}, "REBALANCE_IN_PROGRESS"),
    ("OffsetFetch", {"group": "g"}, "COORDINATOR_LOAD_IN_PROGRESS"),
    ("ListOffsets", {"topic": "t"}, "NOT_LEADER_OR_FOLLOWER"),
    ("Fetch", {"topic": "t"}, "NOT_LEADER_OR_FOLLOWER"),
    ("Fetch", {}, "UNKNOWN_SERVER_ERROR"),
    ("OffsetCommit", {"group": "g", "topic": "t"}, "COORDINATOR_LOAD_IN_PROGRESS"),
]


@pytest.mark.parametrize("consume", [confluent_classic, of_kafka_python], ids=["confluent", "kafka-python"])
@pytest.mark.parametrize(("api", "filters", "error"), CASES)
def test_an_error_that_passes(
    kafka: oncelog.Broker,
    consume: Callable[[oncelog.Broker], list[bytes | None]],
    api: str,
    filters: dict[str, Any],
    error: str,
) -> None:
    kafka.faults.on(api, **filters).nth(1).error(error)
    assert consume(kafka) == RECORDS
    assert kafka.group("g").committed == {"t": {0: 3}}
    kafka.faults.assert_all_fired()


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_MEMBER_ID"])
def test_an_error_that_passes_in_the_consumer_protocol(kafka: oncelog.Broker, error: str) -> None:
    kafka.faults.on("ConsumerGroupHeartbeat", group="g").nth(1).error(error)
    settings = {"group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        | settings
    )
    try:
        consumer.subscribe(["t"])
        assert next(messages(consumer)).value() == b"1"
    finally:
        consumer.close()
    kafka.faults.assert_all_fired()


@pytest.mark.parametrize("lost", ["drop_request", "drop_response"])
def test_a_lost_join_is_repeated(kafka: oncelog.Broker, lost: str) -> None:
    getattr(kafka.faults.on("JoinGroup", group="g").nth(1), lost)()
    # The first JoinGroup made a member, if it came that far; its session ends before the group waits for it.
    assert confluent(kafka, **{"session.timeout.ms": "6000"}) == RECORDS
    kafka.faults.assert_all_fired()
