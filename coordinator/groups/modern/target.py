"""The target assignment, which is computed anew when the group epoch has risen.

It is computed at most once in each assignment interval (KIP-1263); later changes wait for the first heartbeat after the
interval. Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.context import GroupContext, Topics
    from oncelog.coordinator.groups.modern.group import ModernGroup
    from oncelog.coordinator.groups.modern.member import M
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid


class TargetAssignment(NamedTuple):
    """The epoch of the target assignment, the requesting member's part of it, and its ``records`` if it is new."""

    epoch: int
    assignment: Assignment
    records: list[CoordinatorRecord]


def is_due(context: GroupContext, group: ModernGroup[M], epoch: int, interval_ms: int) -> bool:
    """Whether the target assignment must be computed for the group epoch ``epoch``, and may be by now."""
    if group.target_epoch >= epoch:
        return False
    if group.target_timestamp_ms == 0:
        return True  # the time of the last computation is unknown
    # Without an interval do not compare timestamps: wall time may have been set back.
    return interval_ms == 0 or context.now_ms() >= group.target_timestamp_ms + interval_ms


def computed(
    context: GroupContext,
    group: ModernGroup[M],
    epoch: int,
    member_ids: Iterable[str],
    assignments: Mapping[str, Assignment],
    member_id: str,
) -> TargetAssignment:
    """The new target assignment of all members, as the assignor computed it; ``member_id`` sent the request."""
    types, group_id = group.record_types, group.group_id
    changes = []
    for each in member_ids:
        assignment = assignments.get(each, {})
        if assignment != group.targets.get(each):
            changes.append(types.target_assignment(group_id, each, assignment))
    changes.append(types.target_epoch(group_id, epoch, context.now_ms()))
    return TargetAssignment(epoch, assignments.get(member_id, {}), changes)


def topic_ids(names: Iterable[str], topics: Topics) -> dict[Uuid, int]:
    """Topic id -> number of partitions, of existing topics, in the order of their names."""
    known_topics = (topics.by_name(name) for name in sorted(names))
    return {topic.topic_id: len(topic.partitions) for topic in known_topics if topic is not None}
