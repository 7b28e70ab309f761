"""ShareGroupHeartbeat (76): joins, stays in or leaves a share group, and gets the assignment (KIP-932).

``member_epoch``: 0 joins, -1 leaves. Null means unchanged. Version 0 was for early access only.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(
    Request["ShareGroupHeartbeatResponse"], api_key=76, kind="request", versions="1", flexible="0+"
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, api_key=76, kind="response", versions="1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
