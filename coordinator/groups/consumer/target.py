"""The target assignment, which is computed anew when the group epoch has risen.

It is computed at most once in each assignment interval (KIP-1263); later changes wait for the first heartbeat after the
interval. Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.assignors import ASSIGNORS, CLASS_NAMES, GroupSpec, MemberSpec
from oncelog.coordinator.groups.consumer import records, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.consumer.member import Assignment, ConsumerGroupMember
    from oncelog.coordinator.groups.consumer.subscriptions import Subscriptions
    from oncelog.coordinator.groups.context import GroupContext, Topics
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

DEFAULT_ASSIGNOR = "uniform"


class TargetAssignment(NamedTuple):
    """The epoch of the target assignment, the requesting member's part of it, and its ``records`` if it is new."""

    epoch: int
    assignment: Assignment
    records: list[CoordinatorRecord]


def served_assignors(context: GroupContext) -> list[str]:
    """The configured assignors that exist here; the first is the default."""
    configured = context.settings().group_consumer_assignors
    return [name for word in configured if (name := CLASS_NAMES.get(word, word)) in ASSIGNORS]


def default_assignor(context: GroupContext) -> str:
    return next(iter(served_assignors(context)), DEFAULT_ASSIGNOR)


def get_or_compute(
    context: GroupContext,
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscriptions: Subscriptions,
) -> TargetAssignment:
    """The target assignment for the group epoch ``epoch``, or the present one if the interval is not over.

    ``old`` and ``new``: the requesting member before and after its update. ``subscriptions``: the updated ones.
    """
    if group.target_epoch >= epoch or not _is_time(context, group):
        return TargetAssignment(group.target_epoch, group.target(new), [])
    members = dict(group.members)
    previous_id = group.static_members.get(new.instance_id) if new.instance_id is not None else None
    if previous_id is not None and previous_id != new.member_id:
        members.pop(previous_id, None)
    members[new.member_id] = new
    specs, partitions = _specs(group, members, previous_id, new, subscriptions, context.topics)
    homogeneous = subscriptions.are_homogeneous(len(members))
    assign = ASSIGNORS[group.preferred_assignor(old, new) or default_assignor(context)]
    assignments = assign(GroupSpec(specs, partitions, group.target_owners, homogeneous))
    changes = []
    for member_id in specs:
        assignment = assignments.get(member_id, {})
        if assignment != group.targets.get(member_id):
            changes.append(records.target_assignment(group.group_id, member_id, assignment))
    changes.append(records.target_epoch(group.group_id, epoch, context.now_ms()))
    return TargetAssignment(epoch, assignments.get(new.member_id, {}), changes)


def _is_time(context: GroupContext, group: ConsumerGroup) -> bool:
    if group.target_timestamp_ms == 0:
        return True  # the time of the last computation is unknown
    interval_ms = settings.assignment_interval_ms(context, group.group_id)
    # Without an interval do not compare timestamps: wall time may have been set back.
    return interval_ms == 0 or context.now_ms() >= group.target_timestamp_ms + interval_ms


def _specs(
    group: ConsumerGroup,
    members: dict[str, ConsumerGroupMember],
    previous_id: str | None,
    new: ConsumerGroupMember,
    subscriptions: Subscriptions,
    topics: Topics,
) -> tuple[dict[str, MemberSpec], dict[Uuid, int]]:
    """The assignor's input: the members, and topic id -> number of partitions of all subscribed topics."""
    by_names: dict[frozenset[str], dict[Uuid, int]] = {}
    specs = {}
    for member_id, member in members.items():
        names = subscriptions.topics_of(member)
        read = by_names.get(names)
        if read is None:
            read = by_names[names] = topic_ids(names, topics)
        # A static member inherits the target of its instance.
        holder = previous_id if member is new and previous_id is not None else member_id
        specs[member_id] = MemberSpec(read, group.targets.get(holder, {}), member.instance_id)
    partitions: dict[Uuid, int] = {}
    for read in by_names.values():
        partitions.update(read)
    return specs, partitions


def topic_ids(names: Iterable[str], topics: Topics) -> dict[Uuid, int]:
    """Topic id -> number of partitions, of existing topics, in the order of their names."""
    known_topics = (topics.by_name(name) for name in sorted(names))
    return {topic.topic_id: len(topic.partitions) for topic in known_topics if topic is not None}
