"""Produce (0): record batches to append.

Version 3 is the first with magic 2 and a transactional id (KIP-98), 7 allows zstd, 8 returns record errors
(KIP-467), 10 new leaders (KIP-951), 12 adds the partition to the transaction implicitly (KIP-890), 13 names topics
by id (KIP-516).
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Buffer,
    Message,
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
    uuid,
)

PRODUCE_TOPIC_ID_VERSION = 13
"""The first version that names topics by id."""


class PartitionProduceData(Struct):
    index: int = int32()
    records: Buffer | None = records(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request["ProduceResponse"], api_key=0, kind="request", versions="3-13", flexible="9+"):
    """``acks``: 0 none (and no response), 1 the leader, -1 all in-sync replicas."""

    transactional_id: str | None = string(nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """``base_offset`` is -1 with an error; ``log_append_time_ms`` is -1 unless the topic stamps
    LogAppendTime.
    """

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, kind="response", versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
