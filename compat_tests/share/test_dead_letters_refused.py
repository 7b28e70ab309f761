"""Dead-letter queues that cannot be written, or not as one would think, on both targets: nothing is changed but the
state of the records, which are archived.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.share.dead_letter_queues import (
    COPIES,
    ENABLED,
    queue_of,
    wait_until_done,
    with_queue,
)
from compat_tests.share.readers import (
    DEADLINE_MS,
    Acquired,
    Reader,
    join,
    set_group_config,
    share_topic,
    share_version,
)
from tests.common import facts
from tests.common.batches import GZIP, NONE, ZSTD, batch, now_ms, record

pytestmark = [
    pytest.mark.slow,
    facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues"),
]

REJECT = [3]
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
BROKER_RESOURCE, SET, DELETE = 4, 0, 1


@contextmanager
def broker_config(session: Session, key: str, value: str) -> Iterator[None]:
    """Have the brokers of the cluster a key meanwhile."""
    try:
        _alter(session, {"name": key, "config_operation": SET, "value": value}, value)
        yield
    finally:
        _alter(session, {"name": key, "config_operation": DELETE, "value": None}, None)


def _alter(session: Session, change: dict[str, object], wanted: str | None) -> None:
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": [change]}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response
    # Kafka's broker learns of it a moment after the response.
    key = change["name"]
    asked = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": [key]}
    deadline = now_ms() + DEADLINE_MS
    while True:
        [result] = session.call_unobserved("DescribeConfigs", 4, {"resources": [asked]})["results"]
        [row] = result["configs"]
        if (row["value"] == wanted) if wanted is not None else row["config_source"] == 5:
            return
        assert now_ms() < deadline, row


def reject_all(session: Session, name: str, topic_id: bytes, count: int) -> None:
    """Have a member reject so many records, and wait until the group has none left."""
    reader = Reader(session, topic_id, "one", name)
    reader.begin()
    reader.say((0, count - 1, REJECT))
    wait_until_done(session, name)


def test_with_share_version_1_the_keys_are_accepted_and_nothing_is_written(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        with share_version(session, 1):
            topic_id, queue = with_queue(session, name, 2)
            reject_all(session, name, topic_id, 2)
            session.observe("queue", queue_of(session, queue, 0))

    pair.compare(scenario)


def test_a_queue_with_fewer_partitions_than_the_source(pair: Pair, name: str) -> None:
    """The number of the source's partition, modulo those of the queue."""

    def scenario(session: Session) -> None:
        queue = f"dlq.{name}"
        session.topic(queue, 2, ENABLED)
        topic_id = share_topic(session, name, partitions=5, errors_deadletterqueue_topic_name=queue)
        for partition in range(5):
            assert session.produce(name, batch(1), partition=partition)["error_code"] == 0
        reader = Reader(session, topic_id, "one", name, partitions=5)
        acquired: set[int] = set()
        while len(acquired) < 5:
            acquired |= {partition for partition, _ in reader.acquire()}
        said = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": REJECT}]
        body = {
            "group_id": name, "member_id": "one", "share_session_epoch": reader.epoch, "is_renew_ack": False,
            "topics": [
                {"topic_id": topic_id, "partitions": [
                    {"partition_index": one, "acknowledgement_batches": said} for one in range(5)
                ]}
            ],
        }  # fmt: skip
        reader.send(body, "ShareAcknowledge")
        for partition, count in ((0, 3), (1, 2)):
            found = queue_of(session, queue, count, partition)
            session.observe(
                f"queue {partition}",
                sorted(dict(headers)[b"__dlq.errors.partition"] for _, _, headers in found),
            )

    pair.compare(scenario)


def test_a_queue_too_small_for_the_headers_alone(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 3, of_queue={"max.message.bytes": "150"})
        reject_all(session, name, topic_id, 3)
        session.observe("queue", queue_of(session, queue, 0))

    pair.compare(scenario)


@pytest.mark.parametrize(("sizes", "codec"), [([500] * 10, GZIP), ([10] * 40, ZSTD), ([1900, 10, 10], NONE)])
def test_a_compressed_batch_is_copied_if_it_fits_unpacked(
    pair: Pair, name: str, sizes: list[int], codec: int
) -> None:
    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, of_queue={"max.message.bytes": "1500"}, **COPIES)
        records = [record(b"k", bytes(size), offset_delta=delta) for delta, size in enumerate(sizes)]
        assert session.produce(name, batch(records, codec=codec))["error_code"] == 0
        reject_all(session, name, topic_id, len(sizes))
        session.observe("queue", queue_of(session, queue, len(sizes)))

    pair.compare(scenario)


def test_a_copy_that_fits_only_without_the_headers(target: str, bootstrap: str, name: str) -> None:
    """Kafka loses it, and those that were to be written after it; oncelog writes it without key and value."""
    session = Session(bootstrap)
    topic_id, queue = with_queue(session, name, of_queue={"max.message.bytes": "1500"}, **COPIES)
    for size in (10, 1400, 10):
        assert session.produce(name, batch([record(b"k", bytes(size))]))["error_code"] == 0
    reject_all(session, name, topic_id, 3)
    found = [value for _, value, _ in queue_of(session, queue, 0)]
    assert found == ([bytes(10)] if target == "kafka" else [bytes(10), None, bytes(10)])
    session.end()


@pytest.mark.parametrize("copy", ["true", "false"])
def test_a_compacted_queue_wants_keys(pair: Pair, name: str, copy: str) -> None:
    def scenario(session: Session) -> None:
        configs = {"errors_deadletterqueue_copy_record_enable": copy}
        topic_id, queue = with_queue(session, name, 3, of_queue={"cleanup.policy": "compact"}, **configs)
        reject_all(session, name, topic_id, 3)
        session.observe("queue", queue_of(session, queue, 0))

    pair.compare(scenario)


def test_a_queue_that_is_deleted_while_records_are_in_flight(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id, queue = with_queue(session, name, 4)
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 1, REJECT))
        queue_of(session, queue, 2)
        session.call_unobserved("DeleteTopics", 5, {"topic_names": [queue], "timeout_ms": 15000})
        wait_until_gone(session, queue)
        reader.say((2, 2, REJECT))
        session.topic(f"{queue}.other", 1)  # some time passes
        session.topic(queue, 1, ENABLED)
        reader.say((3, 3, REJECT))
        wait_until_done(session, name)
        session.observe("queue", queue_of(session, queue, 1))

    pair.compare(scenario)


def wait_until_gone(session: Session, topic: str) -> None:
    deadline = now_ms() + DEADLINE_MS
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    while not session.call_unobserved("Metadata", 9, asked)["topics"][0]["error_code"]:
        assert now_ms() < deadline, topic


def test_a_queue_is_created_if_that_is_allowed(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        queue = f"dlq.{name}"
        with broker_config(session, AUTO_CREATE, "true"):
            topic_id = share_topic(session, name, 2, errors_deadletterqueue_topic_name=queue)
            reject_all(session, name, topic_id, 2)
            session.wait_for_leaders(queue, 1)
            session.observe("queue", queue_of(session, queue, 2))
            asked = {"resource_type": 2, "resource_name": queue, "configuration_keys": None}
            [result] = session.call_unobserved("DescribeConfigs", 4, {"resources": [asked]})["results"]
            session.observe(
                "configs",
                {row["name"]: row["value"] for row in result["configs"] if row["config_source"] == 1},
            )

    pair.compare(scenario)


@pytest.mark.parametrize("queue", ["dlq.a b", "dlq." + "x" * 300])
def test_a_queue_of_a_name_that_no_topic_can_have(pair: Pair, name: str, queue: str) -> None:
    def scenario(session: Session) -> None:
        with broker_config(session, AUTO_CREATE, "true"):
            topic_id = share_topic(session, name, 2, errors_deadletterqueue_topic_name=queue)
            reject_all(session, name, topic_id, 2)

    pair.compare(scenario)


def test_without_a_prefix_every_name_is_allowed(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        queue = f"other.{name}"
        session.topic(queue, 1, ENABLED)
        with broker_config(session, PREFIX, ""):
            topic_id = share_topic(session, name, 2, errors_deadletterqueue_topic_name=queue)
            reject_all(session, name, topic_id, 2)
            session.observe("queue", queue_of(session, queue, 2))

    pair.compare(scenario)


def test_a_group_that_reads_its_own_queue(pair: Pair, name: str) -> None:
    """It goes round for as long as a member rejects."""

    def scenario(session: Session) -> None:
        queue = f"dlq.{name}"
        topic_id = session.topic(queue, 1, ENABLED)
        assert session.produce(queue, batch(2))["error_code"] == 0
        set_group_config(
            session, queue, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=queue
        )
        wait_for_coordinator(session, queue)
        join(session, queue, topic_id, 1)
        reader = Reader(session, topic_id, "one", queue)
        assert reader.begin() == [(0, 1, 1)]
        reader.say((0, 0, REJECT), (1, 1, REJECT))
        for first in (2, 4):
            queue_of(session, queue, first + 2)
            found: list[Acquired] = []
            while sum(last - begin + 1 for begin, last, _ in found) < 2:
                found += [acquired for _, acquired in reader.acquire()]
            session.observe(
                "acquired", [offset for begin, last, _ in found for offset in range(begin, last + 1)]
            )
            for begin, last, _ in found:
                reader.say((begin, last, REJECT))
        session.observe("queue", queue_of(session, queue, 8))

    pair.compare(scenario)
