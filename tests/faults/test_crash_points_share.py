"""Crash points of share groups: what a start finds is what docs/explanation/share-groups.md says."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

import oncelog
from oncelog import RecordsInFlight
from tests.harness.stock_share_consumers import PATIENCE_S, poll, poll_within, settle, share_consumer

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "share-groups.md"
GROUP = "jobs"
consumer_of = partial(share_consumer, group_id=GROUP, topic="work")
ACKNOWLEDGED = {"work": {0: (RecordsInFlight(0, 0, "acknowledged", 1),)}}

FOUND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "before share state": ({}, {}),
    "after share state": ({}, ACKNOWLEDGED),
    "before response": ({"on": "ShareAcknowledge"}, ACKNOWLEDGED),
    "after response": ({"on": "ShareAcknowledge"}, ACKNOWLEDGED),
}
"""Crash point -> how the rule says which, and the records in flight that a start finds."""


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"work": 1, "other": 1}) as broker:
        broker.share_group(GROUP).configure({"share.auto.offset.reset": "earliest"})
        broker.produce("work", b"1")
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize("point", FOUND)
def test_the_broker_dies_while_a_record_is_acknowledged(kafka: oncelog.Broker, point: str) -> None:
    which, found = FOUND[point]
    consumer = consumer_of(kafka)
    [message] = poll(consumer)
    rule = kafka.faults.crash_at(point, group=GROUP, **which)
    consumer.acknowledge(message)

    def commit() -> None:
        with suppress(KafkaException):
            consumer.commit_sync(5.0)

    thread = threading.Thread(target=commit)
    thread.start()
    rule.wait_fired(timeout=PATIENCE_S)
    assert not kafka.is_running
    with kafka.faults.refuse_connections():  # before the consumer comes again, and fetches
        kafka.start()
        assert kafka.share_group(GROUP).in_flight == found
    thread.join()
    with suppress(KafkaException):
        consumer.close()
    with consumer_of(kafka, client_id="other") as other:
        if found:
            settle(kafka, other, "other")
        again = poll_within(other, PATIENCE_S if not found else 1)
        assert [one.value() for one in again] == ([] if found else [b"1"])


@pytest.mark.parametrize("point", ["before share state", "after share state"])
def test_the_broker_dies_while_the_state_is_initialized(kafka: oncelog.Broker, point: str) -> None:
    """What the first heartbeat began, the first one after the start does anew: no time passes between them."""
    kafka.clock.freeze()
    rule = kafka.faults.crash_at(point, group=GROUP)
    with consumer_of(kafka) as consumer:
        rule.wait_fired(timeout=PATIENCE_S)
        kafka.start()
        [message] = poll(consumer)
        consumer.acknowledge(message)
        consumer.commit_sync(PATIENCE_S)


def test_the_document_has_every_point() -> None:
    section = DOCUMENT.read_text().partition("## What a start does after a crash")[2].partition("\n##")[0]
    named = set(re.findall("`((?:before|after) (?:share state|response))`", section))
    assert named == set(FOUND)


def test_filters_say_which(kafka: oncelog.Broker) -> None:
    rules = [
        kafka.faults.crash_at("before share state", group="others"),
        kafka.faults.crash_at("before share state", topic="other"),
        kafka.faults.crash_at("after share state", partition=1),
        kafka.faults.crash_at("before append"),
    ]
    with consumer_of(kafka) as consumer:
        [message] = poll(consumer)
        consumer.acknowledge(message)
        consumer.commit_sync(PATIENCE_S)
        assert [rule.fired for rule in rules] == [0] * len(rules)
        kafka.faults.clear()
        kafka.produce("work", b"2")
        rule = kafka.faults.crash_at("after share state", group=GROUP, topic="work", partition=0)
        [message] = poll(consumer)
        consumer.acknowledge(message)
        consumer.commit_async()
        rule.wait_fired(timeout=PATIENCE_S)
        kafka.start()
