"""WriteShareGroupState (85): the leader of a share partition keeps what changed in its state (KIP-932).

``start_offset`` -1: as before. Version 1 has how many offsets from the start offset on are complete (KIP-1226).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(
    Request["WriteShareGroupStateResponse"], api_key=85, kind="request", versions="0-1", flexible="0+"
):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Message, api_key=85, kind="response", versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult)
