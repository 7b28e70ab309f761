"""Makes the records of a share group. Source: Kafka's ``GroupCoordinatorRecordHelpers``, ``newShareGroup…``.

Partitions and topic names are sorted; topics are in the order of the assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.records import RecordTypes, topic_partitions
from oncelog.coordinator.groups.share.state_partitions import name_of
from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.stored import groups as stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.context import Topics
    from oncelog.coordinator.groups.share.member import ShareGroupMember
    from oncelog.coordinator.groups.share.state_partitions import ByTopic, StatePartitions

TYPES = RecordTypes(
    stored.ShareGroupMetadataKey,
    stored.ShareGroupMetadataValue,
    stored.ShareGroupTargetAssignmentMetadataKey,
    stored.ShareGroupTargetAssignmentMetadataValue,
    stored.ShareGroupTargetAssignmentMemberKey,
    stored.ShareGroupTargetAssignmentMemberValue,
    stored.ShareGroupCurrentMemberAssignmentKey,
    stored.ShareGroupMemberMetadataKey,
)
"""Makes the records that consumer groups have, too."""


def member_metadata(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """The member's own fields: subscription and client."""
    value = stored.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return CoordinatorRecord(stored.ShareGroupMemberMetadataKey(group_id, member.member_id), value)


def current_assignment(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    value = stored.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=topic_partitions(member.assigned),
    )
    return CoordinatorRecord(stored.ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def state_partitions(group_id: str, partitions: StatePartitions, topics: Topics) -> CoordinatorRecord:
    value = stored.ShareGroupStatePartitionMetadataValue(
        _rows(partitions.initializing),
        _rows(partitions.initialized),
        [stored.TopicInfo(topic_id, name_of(topic_id, topics)) for topic_id in sorted(partitions.deleting)],
    )
    return CoordinatorRecord(stored.ShareGroupStatePartitionMetadataKey(group_id), value)


def _rows(topics: ByTopic) -> list[stored.TopicPartitionsInfo]:
    return [
        stored.TopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions))
        for topic_id, topic in topics.items()
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Delete a group with its members."""
    return [
        *TYPES.members_tombstones(group_id, member_ids),
        CoordinatorRecord(stored.ShareGroupStatePartitionMetadataKey(group_id), None),
        TYPES.group_tombstone(group_id),
    ]
