"""Makes the record of a classic group in ``__consumer_offsets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.stored.groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember

VALUE_VERSION = 3
"""The version of GroupMetadataValue that Kafka writes."""


def metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The record of the group's current state, with ``assignments`` by member id (missing: empty)."""
    return group_record(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type,
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
            members=[
                stored_member(member, group.protocol_name, assignments.get(member.member_id, b""))
                for member in group.members.values()
            ],
        ),
    )


def new_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """The record of a new group without members."""
    return group_record(group_id, GroupMetadataValue("", 0, None, None, now_ms))


def stored_member(member: ClassicGroupMember, protocol: str | None, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group_id), value, VALUE_VERSION)


def tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group_id), None)
