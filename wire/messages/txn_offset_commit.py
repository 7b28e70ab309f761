"""TxnOffsetCommit (28): commits offsets as part of a transaction.

Version 2 adds leader epochs (KIP-320), 3 the member's generation (KIP-447), 5 adds the offsets partition to the
transaction implicitly (KIP-890), and 6 names topics by id (KIP-1319).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int16, int32, int64, string, uuid

TXN_OFFSET_COMMIT_TOPIC_ID_VERSION = 6
"""From this version on topics are named by id."""


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: Uuid = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(
    Request["TxnOffsetCommitResponse"], api_key=28, kind="request", versions="0-6", flexible="3+"
):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: Uuid = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, api_key=28, kind="response", versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
