"""What consumers of the classic protocol put into a JoinGroup's metadata and a SyncGroup's assignment.

The broker only passes it on, except to know which topics a group reads and where a classic group is converted. Its
version (int16) comes first; a newer version is read as the newest known one (Kafka: ``ConsumerProtocol``).
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
