"""The target assignment of a share group: only partitions whose state is initialized.

Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``ShareTargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.assignors import simple
from oncelog.coordinator.groups.assignors.spec import GroupSpec, MemberSpec
from oncelog.coordinator.groups.modern import target as modern
from oncelog.coordinator.groups.share import settings
from oncelog.coordinator.groups.share.member import NO_PARTITIONS

if TYPE_CHECKING:
    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.groups.modern.target import TargetAssignment
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.group import ShareGroup
    from oncelog.coordinator.groups.share.member import ShareGroupMember
    from oncelog.wire.steps import Steps


def get_or_compute(
    shard: GroupShard,
    group: ShareGroup,
    epoch: int,
    new: ShareGroupMember,
    subscriptions: Subscriptions,
) -> TargetAssignment:
    """The target assignment for the group epoch ``epoch``, or the present one if it is not computed (yet).

    ``new``: the requesting member after its update. ``subscriptions``: the updated ones.
    """
    context, group_id = shard.context, group.group_id
    return modern.get_or_compute(
        shard,
        group,
        epoch,
        new,
        settings.assignment_interval_ms(context, group_id),
        lambda: _compute(context, group, new, subscriptions),
        offloads=settings.offloads_assignor(context, group_id),
    )


def _compute(
    context: GroupContext, group: ShareGroup, new: ShareGroupMember, subscriptions: Subscriptions
) -> Steps[dict[str, Assignment]]:
    members = {**group.members, new.member_id: new}
    targets = dict(group.targets)
    homogeneous = subscriptions.are_homogeneous(len(members))
    initialized = {} if group.state_partitions is None else group.state_partitions.initialized
    read = modern.TopicIds(context.topics)
    specs = {}
    for member_id, member in members.items():
        topics = yield from read.of(member.topic_names)
        specs[member_id] = MemberSpec(topics, targets.get(member_id, NO_PARTITIONS))
    assignable = {topic_id: topic.partitions for topic_id, topic in initialized.items()}
    assignments = yield from simple.assign(
        GroupSpec(specs, read.partitions, {}, homogeneous=homogeneous, assignable=assignable)
    )
    return {member_id: assignments.get(member_id, NO_PARTITIONS) for member_id in specs}
