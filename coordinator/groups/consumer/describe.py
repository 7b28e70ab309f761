"""A consumer group as ConsumerGroupDescribe shows it. Source: Kafka's ``ConsumerGroup.asDescribedGroup``."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.target import default_assignor
from oncelog.coordinator.groups.modern.described import NAMES_PER_STEP, Described
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from oncelog.wire.messages.consumer_group_describe import Member as DescribedMember
from oncelog.wire.steps import done

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(shard: GroupShard, group_id: str) -> Described[DescribedGroup]:
    """The described group, with GROUP_ID_NOT_FOUND if it does not exist or is of another type."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        missing = "not found" if group is None else "is not a consumer group"
        missed = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {missing}.", group_id)
        return Described(missed, done(None))
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor(shard.context),
    )
    members, targets = list(group.members.values()), dict(group.targets)
    return Described(described, _add_members(described, members, targets, shard.context.topics))


def _add_members(
    described: DescribedGroup,
    members: Sequence[ConsumerGroupMember],
    targets: Mapping[str, Mapping[Uuid, Collection[int]]],
    topics: Topics,
) -> Steps[None]:
    for member in members:
        described.members.append(_member(member, targets.get(member.member_id, {}), topics))
        yield from repeat(None, 1 + len(member.topic_names) // NAMES_PER_STEP)


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
