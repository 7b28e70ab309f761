"""ReadShareGroupState (84): the leader of a share partition reads its state when it begins to lead (KIP-932)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(
    Request["ReadShareGroupStateResponse"], api_key=84, kind="request", versions="0", flexible="0+"
):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Message, api_key=84, kind="response", versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult)
