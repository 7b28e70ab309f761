"""OffsetCommit and OffsetFetch requests made by hand, and the wait for a group's coordinator."""

from typing import Any

from compat_tests.differential import Session
from tests.common.batches import now_ms
from tests.common.definitions import Fields

LOADING = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: Kafka's errors before it has the topic."""

Partitions = dict[int, Any]
"""Partition -> offset, or (offset, leader epoch, metadata)."""


def wait_for_coordinator(session: Session, group: str) -> None:
    """Wait for the group's coordinator: Kafka creates the offsets topic at the first request, then loads it."""
    deadline = now_ms() + 30_000
    all_topics = {"groups": [{"group_id": group, "topics": None}]}
    while True:
        found = session.call_unobserved("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        fetched = session.call_unobserved("OffsetFetch", 8, all_topics)
        if found["coordinators"][0]["error_code"] == 0 and fetched["groups"][0]["error_code"] not in LOADING:
            return
        assert now_ms() < deadline, (found, fetched)


def commit_body(
    version: int, group: str, topics: dict[str | bytes, Partitions], generation: int = -1, **fields: Any
) -> Fields:
    """The fields of an OffsetCommit. A key of ``topics`` is a topic's name, or its id as bytes."""
    rows = []
    for topic, partitions in topics.items():
        row: Fields = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        row["partitions"] = []
        for partition, position in partitions.items():
            offset, epoch, metadata = position if isinstance(position, tuple) else (position, -1, "")
            partition_row: Fields = {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_metadata": metadata,
            }
            if version >= 6:
                partition_row["committed_leader_epoch"] = epoch
            row["partitions"].append(partition_row)
        rows.append(row)
    body = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": "", "topics": rows}
    return body | fields


def commit(
    session: Session,
    version: int,
    group: str,
    topics: dict[str | bytes, Partitions],
    note: str = "",
    generation: int = -1,
    **fields: Any,
) -> None:
    """OffsetCommit, its response observed."""
    session.call("OffsetCommit", version, commit_body(version, group, topics, generation, **fields), note)


def fetch_body(version: int, *groups: tuple[str, dict[str | bytes, list[int]] | None]) -> Fields:
    """The fields of an OffsetFetch. Each group has its partitions by topic, or None for all."""
    rows = []
    for group, topics in groups:
        topic_rows: Any = None
        if topics is not None:
            topic_rows = [
                {"partition_indexes": partitions}
                | ({"topic_id": topic} if isinstance(topic, bytes) else {"name": topic})
                for topic, partitions in topics.items()
            ]
        rows.append({"group_id": group, "topics": topic_rows})
    return {"groups": rows} if version >= 8 else rows[0]


def fetch(
    session: Session,
    version: int,
    *groups: tuple[str, dict[str | bytes, list[int]] | None],
    note: str = "",
    **fields: Any,
) -> None:
    """OffsetFetch, its response observed with sorted rows."""
    response = session.call_unobserved("OffsetFetch", version, fetch_body(version, *groups) | fields)
    for group in response["groups"] if version >= 8 else [response]:  # Kafka's order is a hash map's
        for topic in group["topics"]:
            topic["partitions"].sort(key=lambda row: row["partition_index"])
        group["topics"].sort(
            key=lambda topic: str(topic.get("name")) + str(topic["partitions"])
        )  # ids are random
    session.observe(f"OffsetFetch v{version} {note}", response)
