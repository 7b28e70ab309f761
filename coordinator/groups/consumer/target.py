"""The target assignment of a consumer group: by which assignor, and of which members.

Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``ConsumerTargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.assignors import ASSIGNORS, CLASS_NAMES, GroupSpec, MemberSpec
from oncelog.coordinator.groups.consumer import settings
from oncelog.coordinator.groups.modern.target import TargetAssignment, computed, is_due, topic_ids

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import GroupContext, Topics
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.wire.schema import Uuid

DEFAULT_ASSIGNOR = "uniform"


def served_assignors(context: GroupContext) -> list[str]:
    """The configured assignors that exist here; the first is the default."""
    configured = context.settings().group_consumer_assignors
    return [name for word in configured if (name := CLASS_NAMES.get(word, word)) in ASSIGNORS]


def default_assignor(context: GroupContext) -> str:
    return next(iter(served_assignors(context)), DEFAULT_ASSIGNOR)


def changes_assignor(
    context: GroupContext, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> bool:
    """Whether the group has another assignor with ``old`` replaced by ``new``."""
    if new.assignor == old.assignor:
        return False
    default = default_assignor(context)
    return (group.preferred_assignor() or default) != (group.preferred_assignor(old, new) or default)


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
    interval_ms = settings.assignment_interval_ms(context, group.group_id)
    if not is_due(context, group, epoch, interval_ms):
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
    return computed(context, group, epoch, specs, assignments, new.member_id)


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
