"""Fetches under rules: what a fetch session leaves unsaid in a request, and fetched records that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from oncelog.broker.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchItem
from oncelog.broker.handlers.table import PARTITION, TOPIC
from oncelog.broker.log.results import FileRange
from oncelog.broker.refusal.rows import RequestRows, Row
from oncelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD
from oncelog.wire.messages.fetch import FetchTopic
from oncelog.wire.messages.share_fetch import FetchPartition as ShareFetchPartition
from oncelog.wire.messages.share_fetch import FetchTopic as ShareFetchTopic
from oncelog.wire.schema import ZERO_UUID, Uuid

CRC_AT = 17
"""Position of the CRC in a batch."""


class RememberedFetches(Protocol):
    """The memory of fetch sessions: `FetchSessions`, and `SeenSessions` of a proxy."""

    def items_of(self, session_id: int) -> Iterable[FetchItem]:
        """Return the partitions of a session. Raises KafkaError for a session that the client must begin anew."""


def add_session(
    rows: RequestRows, request: Any, sessions: RememberedFetches, topic_name: Callable[[Uuid], str | None]
) -> None:
    """Add the partitions that the request's fetch session remembers and the request does not repeat (KIP-227).

    Raises KafkaError for a session that the client has to begin anew.
    """
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return
    topics = {(row.element.topic, row.element.topic_id): row for row in rows.whole.inner}
    asked = {(*key, inner.facts[PARTITION]) for key, row in topics.items() for inner in row.inner}
    asked |= {(t.topic, t.topic_id, index) for t in request.forgotten_topics_data for index in t.partitions}
    for item in sessions.items_of(request.session_id):
        by_id = item.topic_id != ZERO_UUID
        name = "" if by_id else item.topic
        index = item.partition.partition
        if (name, item.topic_id, index) in asked:
            continue
        row = topics.get((name, item.topic_id))
        if row is None:
            facts = rows.whole.facts | {TOPIC: topic_name(item.topic_id) if by_id else name}
            row = Row(FetchTopic(name, item.topic_id), {"topic": name, "topic_id": item.topic_id}, facts)
            topics[name, item.topic_id] = row
            rows.whole.inner.append(row)
        row.inner.append(Row(item.partition, {"partition_index": index}, row.facts | {PARTITION: index}))


class RememberedShareFetches(Protocol):
    """The memory of share sessions: `ShareSessions`."""

    def partitions_of(self, key: tuple[str, str]) -> Iterable[tuple[Uuid, int]]:
        """Return what the session of a group's member remembers: topic ids and partitions."""


def add_share_session(
    rows: RequestRows,
    request: Any,
    sessions: RememberedShareFetches,
    topic_name: Callable[[Uuid], str | None],
) -> None:
    """Add the partitions that the request's share session remembers and the request does not repeat (KIP-932)."""
    if request.share_session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return
    topics = {row.element.topic_id: row for row in rows.whole.inner}
    asked = {(key, inner.facts[PARTITION]) for key, row in topics.items() for inner in row.inner}
    asked |= {
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    }
    for topic_id, index in sessions.partitions_of((request.group_id, request.member_id)):
        if (topic_id, index) in asked:
            continue
        row = topics.get(topic_id)
        if row is None:
            facts = rows.whole.facts | {TOPIC: topic_name(topic_id)}
            row = topics[topic_id] = Row(ShareFetchTopic(topic_id), {"topic_id": topic_id}, facts)
            rows.whole.inner.append(row)
        key = {"partition_index": index}
        row.inner.append(Row(ShareFetchPartition(index), key, row.facts | {PARTITION: index}))


def records_of(row: Any) -> bytes:
    """Read the records of a row into memory, and return them."""
    records = row.records
    if isinstance(records, FileRange):
        try:
            row.records = records.read()
        finally:
            records.release()
    return bytes(row.records or b"")


def damage_crc(records: bytes) -> bytes:
    """Return the records with another CRC in their first batch."""
    if len(records) < HEADER_SIZE:
        return records
    damaged = bytearray(records)
    damaged[CRC_AT] ^= 0xFF
    return bytes(damaged)


def truncate(records: bytes) -> bytes:
    """Return the records without the second half of their last batch."""
    start = position = 0
    while position + LOG_OVERHEAD <= len(records):
        start = position
        position += LOG_OVERHEAD + int.from_bytes(records[position + 8 : position + 12], "big")
    return records[: start + (len(records) - start) // 2]
