"""When a group's epoch rises: a changed subscription, or subscribed topics that changed.

Source: Kafka's ``GroupMetadataManager``, ``consumerGroupHeartbeat`` and ``shareGroupHeartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.modern.group import ModernGroup
    from oncelog.coordinator.groups.modern.member import M
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.partition_writer import CoordinatorRecord


class GroupEpoch(NamedTuple):
    """The group's epoch after a heartbeat, and the record of it if it rose.

    ``checked_metadata``: the group's metadata hash was computed.
    """

    epoch: int
    records: list[CoordinatorRecord]
    checked_metadata: bool


def after(
    context: GroupContext, group: ModernGroup[M], subscriptions: Subscriptions, *, rebalances: bool
) -> GroupEpoch:
    """The epoch of a group with these subscriptions. With ``rebalances`` it rises in any case."""
    if not rebalances and group.volatile.metadata_checked:
        return GroupEpoch(group.epoch, [], checked_metadata=False)
    metadata_hash = group.volatile.topic_hashes.of_group(subscriptions, context.topics)
    if not rebalances and metadata_hash == group.metadata_hash:
        return GroupEpoch(group.epoch, [], checked_metadata=True)
    return GroupEpoch(group.epoch + 1, [_record(group, metadata_hash)], checked_metadata=True)


def after_leave(
    context: GroupContext, group: ModernGroup[M], subscriptions: Subscriptions, left: int
) -> list[CoordinatorRecord]:
    """The record of the next epoch, after so many members ``left``; ``subscriptions`` are those of the others. A group
    that becomes empty has no assignment to compute: its assignment epoch rises, too.
    """
    records = [_record(group, group.volatile.topic_hashes.of_group(subscriptions, context.topics))]
    if len(group.members) == left:
        records.append(group.record_types.target_epoch(group.group_id, group.epoch + 1, 0))
    return records


def _record(group: ModernGroup[M], metadata_hash: int) -> CoordinatorRecord:
    return group.record_types.group_epoch(group.group_id, group.epoch + 1, metadata_hash)
