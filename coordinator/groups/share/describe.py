"""A share group as ShareGroupDescribe shows it. Source: Kafka's ``ShareGroup.asDescribedGroup``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.assignors import simple
from oncelog.coordinator.groups.modern.described import Described, adding
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.share_group_describe import Assignment, DescribedGroup, TopicPartitions
from oncelog.wire.messages.share_group_describe import Member as DescribedMember

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.member import ShareGroupMember


def describe(shard: GroupShard, group_id: str) -> Described[DescribedGroup]:
    """The described group, with GROUP_ID_NOT_FOUND if it does not exist or is of another type."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        missing = "not found" if group is None else "is not a share group"
        missed = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {missing}.", group_id)
        return Described(missed)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=simple.NAME,
    )
    topics = shard.context.topics
    add_members = adding(
        described.members, list(group.members.values()), lambda member: _member(member, topics)
    )
    return Described(described, add_members)


def _member(member: ShareGroupMember, topics: Topics) -> DescribedMember:
    """The member with topic names; partitions of deleted topics are left out."""
    rows = []
    for topic_id, partitions in member.assigned.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            rows.append(TopicPartitions(topic_id, topic.name, sorted(partitions)))
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(rows),
    )
