"""AlterPartition (56): the leader of a partition asks the controller for another ISR (KIP-497).

Version 3 has the epoch of each broker in the ISR (KIP-903); -1: the leader does not know it.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(
    Request["AlterPartitionResponse"], api_key=56, kind="request", versions="2-3", flexible="0+"
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8(ignorable=True)
    partition_epoch: int = int32()


class TopicResult(Struct):
    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[PartitionResult] = array(PartitionResult)


class AlterPartitionResponse(Message, api_key=56, kind="response", versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)
