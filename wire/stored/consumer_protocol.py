"""The consumer embedded protocol: metadata in JoinGroup and assignments in SyncGroup of classic consumers.

The broker decodes them only to find a group's subscribed topics and to convert a classic group. An int16 version comes
first; a newer version is read as the newest known one (Kafka: ``ConsumerProtocol``).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolAssignment(Message, kind="data", versions="0-3", flexible="none"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)


class ConsumerProtocolSubscription(Message, kind="data", versions="0-3", flexible="none"):
    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
