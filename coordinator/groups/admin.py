"""The steps of ListGroups, DescribeGroups and DeleteGroups (Kafka: ``GroupCoordinatorShard``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups import offsets
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.groups.offset_expiry import TOMBSTONES_PER_BATCH_MAX
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_groups import DeletableGroupResult
from oncelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from oncelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.messages.list_groups import ListGroupsRequest
    from oncelog.wire.steps import Steps

NOT_FOUND_VERSION = 6
"""The first version of DescribeGroups with GROUP_ID_NOT_FOUND; older ones return a dead group (KIP-1043)."""


class GroupFilter:
    """The states and types of groups that a ListGroups asks for; an empty list asks for all."""

    __slots__ = ("states", "types")

    def __init__(self, request: ListGroupsRequest) -> None:
        self.states = {state.lower().strip() for state in request.states_filter}
        self.types = {name.lower() for name in request.types_filter}


def list_groups(shard: GroupShard, wanted: GroupFilter) -> Steps[list[ListedGroup]]:
    """The shard's groups that pass the filter."""
    states, types = wanted.states, wanted.types
    found = []
    for group in list(shard.groups.values()):
        if (not states or group.state_name.lower() in states) and (not types or group.group_type in types):
            found.append(ListedGroup(group.group_id, group.protocol_type, group.state_name, group.group_type))
        yield
    return found


def describe_groups(shard: GroupShard, group_ids: Sequence[str], client: Client) -> list[DescribedGroup]:
    """Classic groups with their members; GROUP_ID_NOT_FOUND for any other group."""
    return [_described(shard, group_id, client.api_version) for group_id in group_ids]


def _described(shard: GroupShard, group_id: str, version: int) -> DescribedGroup:
    group = shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        # Metadata is shown for the group's protocol, which only a stable group has.
        protocol = group.protocol_name if group.state is ClassicGroupState.STABLE else None
        members = [_described_member(member, protocol) for member in group.members.values()]
        return DescribedGroup(
            ErrorCode.NONE, None, group_id, group.state_name, group.protocol_type, protocol or "", members
        )
    if version < NOT_FOUND_VERSION:
        return DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    problem = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, problem, group_id, ClassicGroupState.DEAD.value)


def _described_member(member: ClassicGroupMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol is None else member.metadata(protocol),
        member.assignment,
    )


def delete_offsets_of(shard: GroupShard, group_id: str) -> Iterator[None]:
    """Delete the offsets of an empty group, some in each step. Raises KafkaError; then some of them are left."""
    partitions = list(offsets.partitions_with_offsets(shard, group_id))
    for begin in range(0, len(partitions), TOMBSTONES_PER_BATCH_MAX):
        shard.group(group_id).check_delete()
        part = partitions[begin : begin + TOMBSTONES_PER_BATCH_MAX]
        shard.commit([offsets.tombstone(group_id, *at) for at in part])
        yield


def delete_groups(shard: GroupShard, group_ids: Collection[str]) -> list[DeletableGroupResult]:
    """Delete empty groups with their offsets, as one batch of tombstones; the others get an error each.

    Raises KafkaError if the append fails; then no group is deleted.
    """
    tombstones: list[CoordinatorRecord] = []
    results = []
    for group_id in group_ids:
        code = ErrorCode.NONE
        try:
            group = shard.group(group_id)
            group.check_delete()
            tombstones += offsets.group_offset_tombstones(shard, group_id)
            tombstones += group.tombstones()
        except KafkaError as error:
            code = error.code
        results.append(DeletableGroupResult(group_id, code))
    shard.commit(tombstones)
    return results
