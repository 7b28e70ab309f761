"""Dead-letter queues of share groups (KIP-1191): the records, headers and partitions in the queue, on both targets."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from compat_tests import facts
from compat_tests.batches import now_ms, read_batches
from compat_tests.committed_offsets import wait_for_coordinator
from compat_tests.differential import Pair, Session
from compat_tests.share.readers import DEADLINE_MS, Reader, set_group_config, share_topic
from oncelog.wire.records import iterate_records

pytestmark = [
    pytest.mark.slow,
    facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues"),
]

ACCEPT, RELEASE, REJECT = [1], [2], [3]
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
INVALID_CONFIG = 40


def queue_of(session: Session, queue: str, count: int, partition: int = 0) -> list[Any]:
    """The records of a queue's partition, once there are ``count``: key, value and headers."""
    deadline = now_ms() + DEADLINE_MS
    body = {
        "replica_id": -1, "max_wait_ms": 200, "min_bytes": 1, "max_bytes": 1 << 24, "isolation_level": 0,
        "topics": [
            {"topic": queue, "partitions": [
                {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
            ]}
        ],
    }  # fmt: skip
    while True:
        [topic] = session.call_unobserved("Fetch", 12, body)["responses"]
        data = topic["partitions"][0]["records"] or b""
        found: list[Any] = []
        at = 0
        for _ in read_batches(data):
            end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
            found += [(one.key, one.value, one.headers) for one in iterate_records(data[at:end])]
            at = end
        if len(found) >= count:
            return sorted(found, key=lambda row: int(dict(row[2])[b"__dlq.errors.offset"]))
        assert now_ms() < deadline, (len(found), count)


def with_queue(session: Session, name: str, size: int, **configs: str) -> tuple[bytes, str]:
    """A topic with a batch of so many records, and a group with a queue. Returns the topic's id, and the queue."""
    queue = f"dlq.{name}"
    session.topic(queue, 1, ENABLED)
    topic_id = share_topic(
        session, name, size, partitions=1, errors_deadletterqueue_topic_name=queue, **configs
    )
    return topic_id, queue


def test_rejected_records(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 10)
        reader = Reader(session, topic_id, "one", name)
        assert reader.begin() == [(0, 9, 1)]
        reader.say((0, 1, ACCEPT), (2, 4, REJECT), (5, 9, ACCEPT))
        session.observe("queue", queue_of(session, queue, 3))

    pair.compare(scenario)


def test_records_that_were_released_too_often(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 4, share_delivery_count_limit="2")
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 3, RELEASE))
        assert reader.fetch(wait_ms=5000) == [(0, 3, 2)]
        reader.say((0, 0, REJECT), (1, 3, RELEASE))
        session.observe("queue", queue_of(session, queue, 4))

    pair.compare(scenario)


@pytest.mark.parametrize("max_bytes", ["1048588", "300"])
def test_copies_as_far_as_they_fit(pair: Pair, name: str, max_bytes: str) -> None:
    def scenario(session: Session) -> None:
        queue = f"dlq.{name}"
        session.topic(queue, 1, {**ENABLED, "max.message.bytes": max_bytes})
        topic_id = share_topic(
            session,
            name,
            3,
            2,
            errors_deadletterqueue_topic_name=queue,
            errors_deadletterqueue_copy_record_enable="true",
        )
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 4, REJECT))
        session.observe("queue", queue_of(session, queue, 5))

    pair.compare(scenario)


@pytest.mark.parametrize("queue", ["missing", "not enabled", "prefix"])
def test_without_a_queue_that_can_be_written_records_are_archived(pair: Pair, name: str, queue: str) -> None:
    def scenario(session: Session) -> None:
        topic = f"other.{name}" if queue == "prefix" else f"dlq.{name}"
        if queue != "missing":
            session.topic(topic, 1, ENABLED if queue == "prefix" else {})
        topic_id = share_topic(session, name, 2, errors_deadletterqueue_topic_name=topic)
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 1, REJECT))
        wait_until_done(session, name)
        if queue != "missing":
            session.observe("queue", queue_of(session, topic, 0))

    pair.compare(scenario)


def wait_until_done(session: Session, name: str) -> None:
    """Wait until the group has no record left."""
    body = {"groups": [{"group_id": name, "topics": [{"topic_name": name, "partitions": [0]}]}]}
    deadline = now_ms() + DEADLINE_MS
    while True:
        response = session.call_unobserved("DescribeShareGroupOffsets", 1, body)
        if response["groups"][0]["topics"][0]["partitions"][0]["lag"] == 0:
            return
        assert now_ms() < deadline, response


def test_names_that_are_refused(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        for value in ("__x", "a b", "x" * 300, ""):
            change = {"name": "errors.deadletterqueue.topic.name", "config_operation": 0, "value": value}
            resource = {"resource_type": 32, "resource_name": name, "configs": [change]}
            session.call("IncrementalAlterConfigs", 1, {"resources": [resource]})

    pair.compare(scenario)


def test_a_group_without_a_queue_keeps_none(pair: Pair, name: str) -> None:
    """The key is emptied while records are in flight."""

    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 2)
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        set_group_config(session, name, errors_deadletterqueue_topic_name="")
        reader.say((0, 1, REJECT))
        wait_until_done(session, name)
        session.observe("queue", queue_of(session, queue, 0))

    pair.compare(scenario)
