"""Dead-letter queues of share groups (KIP-1191): the records, headers and partitions in the queue, on both targets."""

from __future__ import annotations

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.share.dead_letter_queues import COPIES, ENABLED, queue_of, wait_until_done, with_queue
from compat_tests.share.readers import Reader, set_group_config, share_topic
from tests.common import facts
from tests.common.batches import GZIP, LZ4, ZSTD, batch, record

pytestmark = [
    pytest.mark.slow,
    facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues"),
]

ACCEPT, RELEASE, REJECT = [1], [2], [3]


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
        topic_id, queue = with_queue(session, name, 3, 2, of_queue={"max.message.bytes": max_bytes}, **COPIES)
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 4, REJECT))
        session.observe("queue", queue_of(session, queue, 5))

    pair.compare(scenario)


def test_many_records(pair: Pair, name: str) -> None:
    """In several batches, with offsets of one to four digits."""

    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 1200)
        reader = Reader(session, topic_id, "one", name)
        acquired = reader.begin(most=1200, batch_size=1200)
        reader.say(*((first, last, REJECT) for first, last, _ in acquired))
        session.observe("queue", queue_of(session, queue, 1200))

    pair.compare(scenario)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_copies_of_compressed_records(pair: Pair, name: str, codec: int) -> None:
    """Of some records of a batch, and of batches after it; a null key and a null value stay."""

    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 1, errors_deadletterqueue_copy_record_enable="true")
        records = [record(b"k", None), record(None, b"v" * 300, offset_delta=1, headers=[("h", b"x")])]
        for _ in range(3):
            assert session.produce(name, batch(records, codec=codec))["error_code"] == 0
        reader = Reader(session, topic_id, "one", name)
        held = reader.begin()
        while max(last for _, last, _ in held) < 6:
            held += reader.fetch(wait_ms=5000)
        reader.say((0, 0, ACCEPT), (1, 1, REJECT), (2, 3, ACCEPT), (4, 6, REJECT))
        session.observe("queue", queue_of(session, queue, 4))

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
