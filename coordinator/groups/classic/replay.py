"""Replays the records of classic groups: their durable state changes only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.member import ClassicGroupMember, SupportedProtocol
from oncelog.coordinator.groups.classic.states import ClassicGroupState

if TYPE_CHECKING:
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.stored.groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata


def replay_group_metadata(
    shard: GroupShard,
    key: GroupMetadataKey,
    value: GroupMetadataValue | None,
    offset: int,
    producer_id: int,
) -> None:
    """Apply a classic group's record. The volatile state of a loaded group stays: a step has brought it up to date."""
    group = shard.groups.get(key.group)
    if isinstance(group, ClassicGroup) and value is not None:
        group.stored = value
        if not shard.loaded:
            shard.groups[key.group] = restore(key.group, value)
        return
    if group is not None:
        del shard.groups[key.group]
        group.on_removed(shard)
    if value is not None:
        shard.groups[key.group] = restore(key.group, value)


def restore(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as restored from its newest record."""
    group = ClassicGroup(group_id)
    group.stored = value
    group.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
    group.generation_id = value.generation
    group.protocol_type_or_none = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    if value.current_state_timestamp != -1:
        group.state_timestamp_ms = value.current_state_timestamp
    for stored in value.members:
        group.add(_restore_member(stored, value))
    group.set_subscriptions()
    return group


def _restore_member(stored: MemberMetadata, value: GroupMetadataValue) -> ClassicGroupMember:
    """A member as restored from its record, which has only the selected protocol."""
    timeout = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
    return ClassicGroupMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        timeout,
        stored.session_timeout,
        value.protocol_type,
        [SupportedProtocol(value.protocol or "", stored.subscription)],
        stored.assignment,
    )
