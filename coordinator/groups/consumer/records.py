"""Makes the records of a consumer group. Source: Kafka's ``GroupCoordinatorRecordHelpers``.

Partitions and topic names are sorted; topics are in the order of the assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.records import RecordTypes
from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.stored import groups as stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember, PartitionEpochs
    from oncelog.coordinator.groups.modern.subscriptions import ResolvedRegex


TYPES = RecordTypes(
    stored.ConsumerGroupMetadataKey,
    stored.ConsumerGroupMetadataValue,
    stored.ConsumerGroupTargetAssignmentMetadataKey,
    stored.ConsumerGroupTargetAssignmentMetadataValue,
    stored.ConsumerGroupTargetAssignmentMemberKey,
    stored.ConsumerGroupTargetAssignmentMemberValue,
    stored.ConsumerGroupCurrentMemberAssignmentKey,
    stored.ConsumerGroupMemberMetadataKey,
)
"""Makes the records that share groups have, too."""


def member_metadata(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """The member's own fields: subscription, client, timeout."""
    value = stored.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=member.classic,
    )
    return CoordinatorRecord(stored.ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def current_assignment(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """The member's current assignment, and the state of its reconciliation."""
    value = stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    return CoordinatorRecord(
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value
    )


def _with_epochs(partitions: PartitionEpochs) -> list[stored.TopicPartitions]:
    rows = []
    for topic_id, epochs in partitions.items():
        order = sorted(epochs)
        rows.append(stored.TopicPartitions(topic_id, order, [epochs[partition] for partition in order]))
    return rows


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = stored.ConsumerGroupRegularExpressionValue(
        sorted(resolved.topics), resolved.version, resolved.timestamp_ms
    )
    return CoordinatorRecord(stored.ConsumerGroupRegularExpressionKey(group_id, expression), value)


def regex_tombstone(group_id: str, expression: str) -> CoordinatorRecord:
    return CoordinatorRecord(stored.ConsumerGroupRegularExpressionKey(group_id, expression), None)


def subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Deletes the topics' metadata that brokers before 4.1 stored."""
    return CoordinatorRecord(stored.ConsumerGroupPartitionMetadataKey(group_id), None)


def group_tombstones(
    group_id: str, member_ids: Iterable[str], expressions: Iterable[str]
) -> list[CoordinatorRecord]:
    """Delete a group with its members and resolved expressions."""
    return [
        *TYPES.members_tombstones(group_id, member_ids),
        *(regex_tombstone(group_id, expression) for expression in expressions),
        subscription_metadata_tombstone(group_id),
        TYPES.group_tombstone(group_id),
    ]
