"""Dead-letter queues in scenarios that both targets run: made, and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compat_tests.differential import Session
from compat_tests.share.readers import DEADLINE_MS, share_topic
from tests.common.batches import now_ms
from tests.common.records import read_records

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
COPIES = {"errors_deadletterqueue_copy_record_enable": "true"}


def queue_of(session: Session, queue: str, count: int, partition: int = 0) -> list[Any]:
    """The records of a queue's partition, once there are ``count``: key, value and headers, by the source's offset."""
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
        found = [(one.key, one.value, one.headers) for one in read_records(data)]
        if len(found) >= count:
            return sorted(found, key=lambda row: int(dict(row[2]).get(b"__dlq.errors.offset", -1)))
        assert now_ms() < deadline, (len(found), count)


def with_queue(
    session: Session, name: str, *sizes: int, of_queue: Mapping[str, str] | None = None, **configs: str
) -> tuple[bytes, str]:
    """A topic with batches of so many records, and a group with these ``configs`` and a queue, whose own are
    ``of_queue``. Returns the topic's id, and the queue.
    """
    queue = f"dlq.{name}"
    session.topic(queue, 1, {**ENABLED, **(of_queue or {})})
    topic_id = share_topic(
        session, name, *sizes, partitions=1, errors_deadletterqueue_topic_name=queue, **configs
    )
    return topic_id, queue


def wait_until_done(session: Session, name: str) -> None:
    """Wait until the group has no record left."""
    body = {"groups": [{"group_id": name, "topics": [{"topic_name": name, "partitions": [0]}]}]}
    deadline = now_ms() + DEADLINE_MS
    while True:
        response = session.call_unobserved("DescribeShareGroupOffsets", 1, body)
        if response["groups"][0]["topics"][0]["partitions"][0]["lag"] == 0:
            return
        assert now_ms() < deadline, response
