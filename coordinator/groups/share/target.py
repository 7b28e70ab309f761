"""The target assignment of a share group: only partitions whose state is initialized.

Source: Kafka's ``GroupMetadataManager.maybeUpdateTargetAssignment``, ``ShareTargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.assignors import simple
from oncelog.coordinator.groups.assignors.spec import GroupSpec, MemberSpec
from oncelog.coordinator.groups.modern.target import TargetAssignment, computed, is_due, topic_ids
from oncelog.coordinator.groups.share import settings
from oncelog.coordinator.groups.share.member import NO_PARTITIONS

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.groups.share.group import ShareGroup
    from oncelog.coordinator.groups.share.member import ShareGroupMember
    from oncelog.wire.schema import Uuid


def get_or_compute(
    context: GroupContext,
    group: ShareGroup,
    epoch: int,
    new: ShareGroupMember,
    subscriptions: Subscriptions,
) -> TargetAssignment:
    """The target assignment for the group epoch ``epoch``, or the present one if the interval is not over.

    ``new``: the requesting member after its update. ``subscriptions``: the updated ones.
    """
    interval_ms = settings.assignment_interval_ms(context, group.group_id)
    if not is_due(context, group, epoch, interval_ms):
        return TargetAssignment(group.target_epoch, group.targets.get(new.member_id, NO_PARTITIONS), [])
    members = {**group.members, new.member_id: new}
    by_names: dict[frozenset[str], dict[Uuid, int]] = {}
    specs = {}
    for member_id, member in members.items():
        read = by_names.get(member.topic_names)
        if read is None:
            read = by_names[member.topic_names] = topic_ids(member.topic_names, context.topics)
        specs[member_id] = MemberSpec(read, group.targets.get(member_id, NO_PARTITIONS))
    partitions: dict[Uuid, int] = {}
    for read in by_names.values():
        partitions.update(read)
    initialized = {} if group.state_partitions is None else group.state_partitions.initialized
    assignments = simple.assign(
        GroupSpec(
            specs,
            partitions,
            owners={},
            homogeneous=subscriptions.are_homogeneous(len(members)),
            assignable={topic_id: topic.partitions for topic_id, topic in initialized.items()},
        )
    )
    return computed(context, group, epoch, specs, assignments, new.member_id)
