"""FetchSnapshot (59): bytes of a snapshot of the metadata, which replaces batches that are gone (KIP-630).

Version 1 has directory ids and endpoints (KIP-853). ``unaligned_records``: the bytes from ``position``
on, which may end inside a batch.
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Records,
    Request,
    Struct,
    Uuid,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(
    Request["FetchSnapshotResponse"], api_key=59, kind="request", versions="0-1", flexible="0+"
):
    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2**31 - 1)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionResult(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records | None = records()


class TopicResult(Struct):
    name: str = string()
    partitions: list[PartitionResult] = array(PartitionResult)


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, api_key=59, kind="response", versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
