"""InitializeShareGroupState (83): the group coordinator begins the state of share partitions (KIP-932).

``start_offset`` -1: the leader decides by the group's configuration.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(
    Request["InitializeShareGroupStateResponse"], api_key=83, kind="request", versions="0", flexible="0+"
):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Message, api_key=83, kind="response", versions="0", flexible="0+"):
    results: list[InitializeStateResult] = array(InitializeStateResult)
