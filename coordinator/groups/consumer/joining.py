"""Finds or creates the group and the member of a request; a static member may replace another one.

Source: Kafka's ``GroupMetadataManager``, ``getOrMaybeCreateConsumerGroup``, ``getOrMaybeSubscribe…Member``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.consumer import migration, records
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.member import STATIC_LEAVING_EPOCH, ConsumerGroupMember
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord


def group_for(shard: GroupShard, group_id: str, *, create: bool) -> migration.FoundGroup:
    """The consumer group, or a new one together with the records that create it.

    With ``create``, an unknown group is created, an empty classic group is replaced, and a classic group of consumers
    is converted. Raises KafkaError (GROUP_ID_NOT_FOUND).
    """
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return migration.FoundGroup(group)
    if group is None:
        if not create:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return migration.FoundGroup(ConsumerGroup(group_id))
    if not create or not isinstance(group, ClassicGroup):
        if create:
            shard.context.other_type(group_id, group.group_type, "consumer")
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group.is_empty():
        return migration.FoundGroup(ConsumerGroup(group_id), list(group.tombstones()))
    return migration.upgrade(shard, group)


def check_size(context: GroupContext, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise KafkaError (GROUP_MAX_SIZE_REACHED) for a new member of a full group, unless its instance is known."""
    limit = context.settings().group_consumer_max_size
    if (
        len(group.members) >= limit
        and member_id not in group.members
        and instance_id not in group.static_members
    ):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def new_member_id(context: GroupContext) -> str:
    """A random UUID in Kafka's text form. Kafka allows no leading dash, since tools would read it as an option."""
    while True:
        bits = context.random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
        text = uuid_to_text(bits.to_bytes(16))
        if not text.startswith("-"):
            return text


def dynamic_member(group: ConsumerGroup, member_id: str, *, create: bool) -> ConsumerGroupMember:
    """The member, or with ``create`` a new one. Raises KafkaError (UNKNOWN_MEMBER_ID)."""
    if create and member_id not in group.members:
        return ConsumerGroupMember(member_id)
    return group.member(member_id)


def static_member(
    group: ConsumerGroup, member_id: str, instance_id: str, *, create: bool, classic: bool
) -> tuple[ConsumerGroupMember, list[CoordinatorRecord]]:
    """The static member, and the records that let it replace the former member of the instance.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; UNRELEASED_INSTANCE_ID where both use the consumer
    protocol and the former member has not left.
    """
    holder = group.static_member(instance_id)
    if not create:
        holder = member_of_instance(holder, member_id, instance_id)
        return holder, []
    if holder is None:
        return dynamic_member(group, member_id, create=True), []
    if not classic and not holder.is_classic and holder.epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {holder.member_id} member.",
        )
    member = holder._replace(member_id=member_id, epoch=0, previous_epoch=0)
    return member, [
        *records.TYPES.member_tombstones(group.group_id, holder.member_id),
        records.member_metadata(group.group_id, member),
        records.TYPES.target_assignment(group.group_id, member_id, group.targets.get(holder.member_id, {})),
        records.current_assignment(group.group_id, member),
    ]


def member_of_instance(
    holder: ConsumerGroupMember | None, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    """``holder``, if it is the member ``member_id``. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder
