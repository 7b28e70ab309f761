"""Requests about offsets, as tests make them: ``{"topic": {partition: offset or (offset, metadata)}}``."""

from __future__ import annotations

from typing import Any

from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.harness.sim_client import SimClient

Rows = dict[tuple[str, int], Any]


def commit_request(group: str, offsets: dict[str, dict[int, Any]], **fields: Any) -> OffsetCommitRequest:
    """``fields``: of the request; those of a member, for one."""
    topics = [
        OffsetCommitRequestTopic(
            topic,
            partitions=[
                OffsetCommitRequestPartition(partition, *(_pair(asked)[:1]), 3, _pair(asked)[1])
                for partition, asked in partitions.items()
            ],
        )
        for topic, partitions in offsets.items()
    ]
    return OffsetCommitRequest(group, topics=topics, **fields)


def _pair(asked: int | tuple[int, str | None]) -> tuple[int, str | None]:
    return asked if isinstance(asked, tuple) else (asked, "")


async def commit(
    client: SimClient, group: str, offsets: dict[str, dict[int, Any]], version: int = 9, **fields: Any
) -> Rows:
    """Commit. Returns the error code per topic and partition."""
    response = await client.call(commit_request(group, offsets, **fields), version, OffsetCommitResponse)
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


async def fetch_offsets(
    client: SimClient,
    group: str,
    topics: dict[str, list[int]] | None = None,
    *,
    require_stable: bool = False,
    version: int = 9,
) -> Rows | int:
    """Return the group's committed offsets: offset, or (offset, metadata) if there is metadata, or ``"error n"``; or
    the error code of the whole response."""
    if version >= 8:
        rows = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(name, partition_indexes=list(partitions))
                for name, partitions in topics.items()
            ]
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group, topics=rows)], require_stable=require_stable
        )
        response = await client.call(request, version, OffsetFetchResponse)
        found: Any = response.groups[0]
    else:
        old = (
            None
            if topics is None
            else [OffsetFetchRequestTopic(name, list(partitions)) for name, partitions in topics.items()]
        )
        request = OffsetFetchRequest(group, old, require_stable=require_stable)
        found = await client.call(request, version, OffsetFetchResponse)
    if found.error_code:
        return int(found.error_code)
    return {
        (topic.name, row.partition_index): _seen(row) for topic in found.topics for row in topic.partitions
    }


def _seen(row: Any) -> Any:
    if row.error_code:
        return f"error {row.error_code}"
    return (row.committed_offset, row.metadata) if row.metadata else row.committed_offset


async def delete_offsets(client: SimClient, group: str, topics: dict[str, list[int]]) -> Rows | int:
    """Delete offsets. Returns the error code per topic and partition, or that of the whole response."""
    rows = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(partition) for partition in partitions])
        for name, partitions in topics.items()
    ]
    response = await client.call(OffsetDeleteRequest(group, rows), 0, OffsetDeleteResponse)
    if response.error_code:
        return int(response.error_code)
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }
