"""SyncGroup: the leader sends all assignments, and every member gets its own.

Source: Kafka's ``GroupMetadataManager.classicGroupSync``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.classic import rebalance, records, responses, timers, to_consumer_group
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

    SyncResult = SyncGroupResponse | Promise[SyncGroupResponse]


def sync(shard: GroupShard, request: SyncGroupRequest, client: Client) -> SyncResult:
    """The response with the member's assignment, or a promise of it while the leader has not assigned."""
    group = shard.groups.get(request.group_id)
    if group is None or group.is_empty():
        return responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID)
    if not isinstance(group, ClassicGroup):
        return to_consumer_group.sync(shard, group, request, client)
    code = _check(group, request)
    if code:
        return responses.sync_error(code)
    member = group.members[request.member_id]
    _end_pending_sync(shard, group, member)
    if group.state is ClassicGroupState.STABLE:
        return responses.synced(group, member)
    promise: Promise[SyncGroupResponse] = Promise()
    responses.await_sync(member, promise)
    if group.is_leader(member.member_id):
        _assign(shard, group, {row.member_id: bytes(row.assignment) for row in request.assignments})
    return promise


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type_or_none) or _differs(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(requested: str | None, known: str | None) -> bool:
    """Whether the request and the group have different values; False if one has none."""
    return requested is not None and known is not None and requested != known


def _end_pending_sync(shard: GroupShard, group: ClassicGroup, member: ClassicGroupMember) -> None:
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        timers.cancel_sync(shard, group)


def _assign(shard: GroupShard, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    """Store the leader's assignments (empty for members that it left out), then complete the SyncGroups that wait."""
    try:
        shard.commit([records.metadata_record(group, assignments)])
    except KafkaError as error:
        rebalance.clear_assignments(shard, group, to_client_error(error).code)
        rebalance.prepare_or_complete(shard, group, f"its assignments could not be stored: {error}")
        return
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if responses.complete_sync(member, responses.synced(group, member)):
            # It could not send heartbeats while it waited.
            timers.renew_session(shard, group, member)
    group.transition_to(ClassicGroupState.STABLE, shard.context.now_ms())
