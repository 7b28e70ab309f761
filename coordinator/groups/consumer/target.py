"""The target assignment of a consumer group: by which assignor, and of which members.

Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``ConsumerTargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.assignors import ASSIGNORS, CLASS_NAMES, GroupSpec, MemberSpec
from oncelog.coordinator.groups.consumer import settings
from oncelog.coordinator.groups.modern import target as modern

if TYPE_CHECKING:
    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.groups.modern.target import TargetAssignment
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.steps import Steps

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
    shard: GroupShard,
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscriptions: Subscriptions,
) -> TargetAssignment:
    """The target assignment for the group epoch ``epoch``, or the present one if it is not computed (yet).

    ``old`` and ``new``: the requesting member before and after its update. ``subscriptions``: the updated ones.
    """
    context, group_id = shard.context, group.group_id
    return modern.get_or_compute(
        shard,
        group,
        epoch,
        new,
        settings.assignment_interval_ms(context, group_id),
        lambda: _compute(context, group, old, new, subscriptions),
        offloads=settings.offloads_assignor(context, group_id),
    )


def _compute(
    context: GroupContext,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscriptions: Subscriptions,
) -> Steps[dict[str, Assignment]]:
    members, targets, subscriptions = dict(group.members), dict(group.targets), subscriptions.copy()
    previous_id = group.static_members.get(new.instance_id) if new.instance_id is not None else None
    if previous_id is not None and previous_id != new.member_id:
        members.pop(previous_id, None)
        # A static member inherits the target of its instance.
        targets[new.member_id] = targets.get(previous_id, {})
    members[new.member_id] = new
    homogeneous = subscriptions.are_homogeneous(len(members))
    owners = {topic_id: dict(held) for topic_id, held in group.target_owners.items()} if homogeneous else {}
    assign = ASSIGNORS[group.preferred_assignor(old, new) or default_assignor(context)]
    read = modern.TopicIds(context.topics)
    specs = {}
    for member_id, member in members.items():
        topics = yield from read.of(subscriptions.topics_of(member))
        specs[member_id] = MemberSpec(topics, targets.get(member_id, {}), member.instance_id)
    assignments = yield from assign(GroupSpec(specs, read.partitions, owners, homogeneous))
    return {member_id: assignments.get(member_id, {}) for member_id in specs}
