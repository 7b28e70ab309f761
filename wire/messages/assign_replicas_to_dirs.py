"""AssignReplicasToDirs (73): a broker says in which directories its replicas are (KIP-858).

The directory of a replica that the broker cannot serve is ``DirectoryId.LOST``.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(
    Request["AssignReplicasToDirsResponse"], api_key=73, kind="request", versions="0", flexible="0+"
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DirectoryResult(Struct):
    id: Uuid = uuid()
    topics: list[TopicResult] = array(TopicResult)


class AssignReplicasToDirsResponse(Message, api_key=73, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryResult] = array(DirectoryResult)
