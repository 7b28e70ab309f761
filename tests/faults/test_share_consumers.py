"""Stock share consumers under rules: what they have not accepted comes again, and they lose nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException

import oncelog
from tests.harness.stock_share_consumers import PATIENCE_S, share_consumer

GROUP = "jobs"
SHORT_LOCKS = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 2000,
}


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"work": 1}, config=SHORT_LOCKS) as broker:
        broker.share_group(GROUP).configure({"share.auto.offset.reset": "earliest"})
        yield broker


@contextmanager
def consuming(kafka: oncelog.Broker, **settings: Any) -> Iterator[Any]:
    more = {"retry.backoff.ms": 20, **settings}
    consumer = share_consumer(kafka, group_id=GROUP, topic="work", **more)
    try:
        yield consumer
    finally:
        consumer.close()


def accept(consumer: Any, has_all: Callable[[dict[bytes, int]], bool]) -> dict[bytes, int]:
    """Accept what comes until all has come. Returns the last delivery count of each value."""
    seen: dict[bytes, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while not has_all(seen):
        assert time.monotonic() < deadline, seen
        for message in consumer.poll(0.2):
            if message.error() is None:
                seen[message.value()] = message.delivery_count()
                consumer.acknowledge(message)
        with suppress(KafkaException):
            consumer.commit_sync(10.0)
    return seen


RULES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "a fetch is refused": ("ShareFetch", "error", ("NOT_LEADER_OR_FOLLOWER",)),
    "a fetch fails": ("ShareFetch", "error", ("UNKNOWN_SERVER_ERROR",)),
    "a session is unknown": ("ShareFetch", "error", ("SHARE_SESSION_NOT_FOUND",)),
    "a fetch is lost": ("ShareFetch", "drop_request", ()),
    "fetched records are lost": ("ShareFetch", "drop_response", ()),
    "a fetch is late": ("ShareFetch", "delay", (400,)),
    "an acknowledgement is refused": ("ShareAcknowledge", "error", ("COORDINATOR_NOT_AVAILABLE",)),
    "an acknowledgement comes too late": ("ShareAcknowledge", "error", ("INVALID_RECORD_STATE",)),
    "an acknowledgement is lost": ("ShareAcknowledge", "drop_request", ()),
    "an acknowledgement is not confirmed": ("ShareAcknowledge", "drop_response", ()),
    "a heartbeat fails": ("ShareGroupHeartbeat", "error", ("COORDINATOR_LOAD_IN_PROGRESS",)),
    "a member is unknown": ("ShareGroupHeartbeat", "error", ("UNKNOWN_MEMBER_ID",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", RULES)
def test_a_running_consumer_under_a_rule(kafka: oncelog.Broker, what: str) -> None:
    api, action, arguments = RULES[what]
    kafka.produce("work", b"before")
    with consuming(kafka) as consumer:
        accept(consumer, lambda seen: b"before" in seen)
        rule = getattr(kafka.faults.on(api, group=GROUP).nth(1), action)(*arguments)
        values = {b"1", b"2", b"3"}
        for value in sorted(values):
            kafka.produce("work", value)
        accept(consumer, lambda seen: values <= seen.keys() and rule.fired > 0)
        # What was accepted in vain is locked until it comes again.
        accept(consumer, lambda _: kafka.share_group(GROUP).info.partitions["work"][0].lag == 0)
    # The member may still be there: librdkafka tells that it leaves once, and the rule may have ended that connection.
    kafka.share_group(GROUP).wait_for(lag=0, timeout=PATIENCE_S)
    kafka.faults.assert_all_fired()


def produce_until(
    kafka: oncelog.Broker, consumer: Any, rule: oncelog.Rule
) -> tuple[dict[bytes, int], list[str]]:
    """Produce and accept records until the rule has fired, and the group is done with all. Returns the last delivery
    count of each value, and the errors.
    """
    seen: dict[bytes, int] = {}
    errors: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    produced = 0
    while not rule.fired or kafka.share_group(GROUP).info.partitions["work"][0].lag:
        assert time.monotonic() < deadline, (seen, errors)
        if not rule.fired:  # the fetch that is under way is not the rule's
            kafka.produce("work", str(produced))
            produced += 1
        for message in consumer.poll(0.2):
            if message.error() is None:
                seen[message.value()] = message.delivery_count()
                consumer.acknowledge(message)
            else:
                errors.append(message.error().name())
        consumer.commit_sync(PATIENCE_S)
    return seen, errors


@pytest.mark.slow
def test_records_that_are_cut_come_again(kafka: oncelog.Broker) -> None:
    kafka.produce("work", b"before")
    with consuming(kafka) as consumer:
        accept(consumer, lambda seen: b"before" in seen)
        rule = kafka.faults.on("ShareFetch", group=GROUP, topic="work").nth(1).truncate()
        seen, errors = produce_until(kafka, consumer, rule)
    assert errors == []
    assert max(seen.values()) > 1


def test_records_with_a_wrong_crc_are_rejected() -> None:
    """librdkafka rejects what it cannot read, and tells its application. No lock ends meanwhile."""
    with oncelog.Broker(topics={"work": 1}) as kafka:
        kafka.clock.freeze()
        kafka.share_group(GROUP).configure({"share.auto.offset.reset": "earliest"})
        reject_what_is_damaged(kafka)


def reject_what_is_damaged(kafka: oncelog.Broker) -> None:
    kafka.produce("work", b"before")
    with consuming(kafka, **{"check.crcs": True}) as consumer:
        accept(consumer, lambda seen: b"before" in seen)
        rule = kafka.faults.on("ShareFetch", group=GROUP).nth(1).damage_crc()
        seen, errors = produce_until(kafka, consumer, rule)
    assert errors == ["_BAD_MSG"]
    assert set(seen.values()) <= {1}
