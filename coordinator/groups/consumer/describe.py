"""A consumer group as ConsumerGroupDescribe shows it. Source: Kafka's ``ConsumerGroup.asDescribedGroup``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.target import default_assignor
from oncelog.coordinator.groups.modern.described import Described, adding
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from oncelog.wire.messages.consumer_group_describe import Member as DescribedMember

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Uuid

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(shard: GroupShard, group_id: str) -> Described[DescribedGroup]:
    """The described group, with GROUP_ID_NOT_FOUND if it does not exist or is of another type."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        missing = "not found" if group is None else "is not a consumer group"
        missed = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {missing}.", group_id)
        return Described(missed)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor(shard.context),
    )
    targets, topics = dict(group.targets), shard.context.topics
    add_members = adding(
        described.members,
        list(group.members.values()),
        lambda member: _member(member, targets.get(member.member_id, {}), topics),
    )
    return Described(described, add_members)


def _member(
    member: ConsumerGroupMember, target: Mapping[Uuid, Collection[int]], topics: Topics
) -> DescribedMember:
    # A partition that it must revoke is its own until it has.
    owned: dict[Uuid, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, rows in partitions.items():
            owned.setdefault(topic_id, []).extend(rows)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(target, topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[Uuid, Collection[int]], topics: Topics) -> Assignment:
    """The partitions with topic names; partitions of deleted topics are left out."""
    rows = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            rows.append(TopicPartitions(topic_id, topic.name, sorted(numbers)))
    return Assignment(rows)
