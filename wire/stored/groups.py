"""Records of ``__consumer_offsets``: committed offsets, classic groups, consumer groups (KIP-848), share groups.

The key begins with the record's type (``api_key`` here) and the value with its version, each an int16, which
`wire.stored.coordinator` writes and reads.

Source: the group coordinator's record definitions, ``GroupCoordinatorRecordSerde``, KIP-211, KIP-345, KIP-848,
KIP-932, KIP-1101, KIP-1263.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Struct, Uuid, array, bytes_, int8, int32, int64, string, struct, uuid


class LegacyOffsetCommitKey(Message, api_key=0, kind="coordinator-key", versions="0", flexible="none"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, api_key=0, kind="coordinator-value", versions="0", flexible="none"):
    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, api_key=1, kind="coordinator-key", versions="0", flexible="none"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, api_key=1, kind="coordinator-value", versions="0-4", flexible="4+"):
    """A committed offset; timestamps in milliseconds, -1: none. Only version 1 has an expire timestamp."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, api_key=2, kind="coordinator-key", versions="0", flexible="none"):
    group: str = string()


class MemberMetadata(Struct):
    """A member of a classic group; timeouts in milliseconds."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, api_key=2, kind="coordinator-value", versions="0-4", flexible="4+"):
    """A classic group after its last completed rebalance."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Message, api_key=3, kind="coordinator-key", versions="0", flexible="none"):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, api_key=3, kind="coordinator-value", versions="0", flexible="0+"):
    """A consumer group's epoch, and the hash of its subscribed topics (0: unknown)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(
    Message, api_key=4, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(
    Message, api_key=4, kind="coordinator-value", versions="0", flexible="0+"
):
    """Written by brokers before 4.1; replaced by the group's ``metadata_hash``."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(
    Message, api_key=5, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class ClassicMemberMetadata(Struct):
    """JoinGroup fields of a member of the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(
    Message, api_key=5, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member of a consumer group: its subscription and client."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(
    Message, api_key=6, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(
    Message, api_key=6, kind="coordinator-value", versions="0", flexible="0+"
):
    """The group epoch of the target assignment, and the time (ms) at which it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(
    Message, api_key=7, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(
    Message, api_key=7, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(
    Message, api_key=8, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of a topic, and the member epoch at which each was assigned (as many, or null)."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(
    Message, api_key=8, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member's current assignment: its partitions, those that it must revoke, and the state of its reconciliation."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupMemberMetadataKey(Message, api_key=10, kind="coordinator-key", versions="0", flexible="none"):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(
    Message, api_key=10, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member of a share group: its subscription and client."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, api_key=11, kind="coordinator-key", versions="0", flexible="none"):
    group_id: str = string()


class ShareGroupMetadataValue(Message, api_key=11, kind="coordinator-value", versions="0", flexible="0+"):
    """A share group's epoch, and the hash of its subscribed topics."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(
    Message, api_key=12, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(
    Message, api_key=12, kind="coordinator-value", versions="0", flexible="0+"
):
    """The group epoch of the target assignment, and the time (ms) at which it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(
    Message, api_key=13, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(
    Message, api_key=13, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(
    Message, api_key=14, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(
    Message, api_key=14, kind="coordinator-value", versions="0", flexible="0+"
):
    """A member's current assignment."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupStatePartitionMetadataKey(
    Message, api_key=15, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(
    Message, api_key=15, kind="coordinator-value", versions="0", flexible="0+"
):
    """The share partitions of a group that have a state in ``__share_group_state``, or are getting or losing one."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


class ConsumerGroupRegularExpressionKey(
    Message, api_key=16, kind="coordinator-key", versions="0", flexible="none"
):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(
    Message, api_key=16, kind="coordinator-value", versions="0", flexible="0+"
):
    """The topics that the expression matched, with the metadata version and the time (ms)."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


def _types(kind: str) -> dict[int, type[Message]]:
    return {
        record.API_KEY: record
        for record in Message.__subclasses__()
        if record.__module__ == __name__ and kind == record.KIND
    }


KEY_TYPES = _types("coordinator-key")
"""Record type -> class of the key."""
VALUE_TYPES = _types("coordinator-value")
"""Record type -> class of the value."""
