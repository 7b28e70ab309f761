"""JoinGroup: a new member joins, or a member joins again (Kafka: ``GroupMetadataManager.classicGroupJoin``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.classic import (
    rebalance,
    records,
    responses,
    static,
    timers,
    to_consumer_group,
)
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.member import ClassicGroupMember, SupportedProtocol
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.groups.group import SHARE
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import Client, GroupSettings
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

    JoinResult = JoinGroupResponse | Promise[JoinGroupResponse]

UNKNOWN_MEMBER_ID = ""
MEMBER_ID_REQUIRED_VERSION = 4
"""From this version on a new member sends JoinGroup twice: first only to get its member id (KIP-394)."""
MEMBER_ID_BYTES_MAX = 32_767
"""Bytes of a member id (the client's name and 37 characters): the longest string that a response can have."""

PENDING_MEMBERS_MAX = 10_000
"""Member ids of one group that were given out and have not joined yet: each is kept for its session timeout, which the
client chooses. Kafka has no limit.
"""
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Milliseconds that a new member's first JoinGroup may wait: its client may have died without notice. A constant in
Kafka too (``CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS``).
"""


def check(request: JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    """Check the request without looking at the group; NONE if it is valid."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    minimum, maximum = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    return (
        ErrorCode.NONE
        if minimum <= request.session_timeout_ms <= maximum
        else ErrorCode.INVALID_SESSION_TIMEOUT
    )


def join(shard: GroupShard, request: JoinGroupRequest, client: Client) -> JoinResult:
    """Add a member or let it rejoin. Returns the response, or a promise where it must wait for other members."""
    result = _join(shard, request, client)
    return result if isinstance(result, Promise) else responses.as_versioned(result, client.api_version)


def _join(shard: GroupShard, request: JoinGroupRequest, client: Client) -> JoinResult:
    code = check(request, shard.context.settings())
    if code:
        return responses.join_error(code, request.member_id)
    group = shard.groups.get(request.group_id)
    if group is not None and not isinstance(group, ClassicGroup):
        if group.group_type == SHARE:
            shard.context.other_type(request.group_id, SHARE, "classic")
            return responses.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not group.is_empty():
            return to_consumer_group.join(shard, group, request, client)
    if not isinstance(group, ClassicGroup):
        if request.member_id != UNKNOWN_MEMBER_ID:
            return responses.join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        # Create the group first, even if its first member is then refused. Delete an empty consumer group.
        old_tombstones = () if group is None else group.tombstones()
        try:
            shard.commit(
                [*old_tombstones, records.new_group_record(request.group_id, shard.context.now_ms())]
            )
        except KafkaError as error:
            return responses.join_error(to_client_error(error).code)
        group = shard.groups[request.group_id]
        assert isinstance(group, ClassicGroup)
    return _join_classic(shard, group, request, client)


def _join_classic(
    shard: GroupShard, group: ClassicGroup, request: JoinGroupRequest, client: Client
) -> JoinResult:
    member_id = request.member_id
    if not _accepts_joining_member(group, member_id, shard.context.settings().group_max_size):
        group.remove(member_id)
        timers.cancel_session(shard, group, member_id)
        return responses.join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state is ClassicGroupState.DEAD:
        return responses.join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return responses.join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id == UNKNOWN_MEMBER_ID:
        return _join_new(shard, group, request, client)
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a static member is never pending")
        return add_member(shard, group, request, client, member_id)
    try:
        group.check_member(member_id, request.group_instance_id)
    except KafkaError as error:
        return responses.join_error(error.code, member_id)
    return _rejoin(shard, group, request, client, group.members[member_id])


def _accepts_joining_member(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Whether the group has room for the member. In a group that is too large, the last to join are refused."""
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_promise is not None) or group.awaited_joins < max_size
    if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        return member is not None or len(group.members) < max_size
    return True


def _join_new(
    shard: GroupShard, group: ClassicGroup, request: JoinGroupRequest, client: Client
) -> JoinResult:
    instance_id = request.group_instance_id
    prefix = client.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{shard.context.new_uuid_text()}"
    if len(member_id) > MEMBER_ID_BYTES_MAX // 4 and len(member_id.encode()) > MEMBER_ID_BYTES_MAX:
        # No response could carry such a member id, neither this one nor those to the group's leader.
        return responses.join_error(ErrorCode.UNKNOWN_SERVER_ERROR)
    if instance_id is not None and instance_id in group.static_members:
        return static.replace(shard, group, request, client, member_id)
    if instance_id is None and client.api_version >= MEMBER_ID_REQUIRED_VERSION:
        if len(group.pending_joins) >= PENDING_MEMBERS_MAX:
            return responses.join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
        group.pending_joins.add(member_id)
        timers.set_session(shard, group, member_id, request.session_timeout_ms)
        return responses.join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return add_member(shard, group, request, client, member_id)


def _rejoin(
    shard: GroupShard,
    group: ClassicGroup,
    request: JoinGroupRequest,
    client: Client,
    member: ClassicGroupMember,
) -> JoinResult:
    """A member joins again: it was told to, its subscription changed, or it got no response."""
    if group.state is ClassicGroupState.EMPTY:
        return responses.join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
    protocols = protocols_of(request)
    leads = group.is_leader(member.member_id)
    # Nothing changed: the member may have lost the response, so it gets it again. But the leader of a stable group
    # rejoins for a reason that only it knows, such as new partitions.
    if member.protocols == protocols and (
        group.state is ClassicGroupState.COMPLETING_REBALANCE
        or (group.state is ClassicGroupState.STABLE and not leads)
    ):
        members = responses.members_for_leader(group) if leads else ()
        return responses.joined(group, member.member_id, members)
    promise = responses.JoinPromise(client.api_version)
    group.update(member, protocols, rebalance_timeout_ms(request, client), request.session_timeout_ms)
    group.await_join(member, promise)
    rebalance.prepare_or_complete(shard, group, f"{member.member_id} joins again: {reason_of(request)}")
    return promise


def add_member(
    shard: GroupShard, group: ClassicGroup, request: JoinGroupRequest, client: Client, member_id: str
) -> JoinResult:
    """Add a new member and begin a rebalance."""
    member = ClassicGroupMember(
        member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        rebalance_timeout_ms(request, client),
        request.session_timeout_ms,
        request.protocol_type,
        protocols_of(request),
    )
    member.is_new = True
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is ClassicGroupState.EMPTY
    ):
        group.new_member_added = True
    promise = responses.JoinPromise(client.api_version)
    group.add(member)
    group.await_join(member, promise)
    timers.set_session(shard, group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance.prepare_or_complete(shard, group, f"{member_id} is new: {reason_of(request)}")
    return promise


def reason_of(request: JoinGroupRequest) -> str:
    """The client's own reason to join (KIP-800)."""
    return request.reason or "no reason given"


def protocols_of(request: JoinGroupRequest) -> list[SupportedProtocol]:
    return [SupportedProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def rebalance_timeout_ms(request: JoinGroupRequest, client: Client) -> int:
    """The rebalance timeout; version 0 has none and uses the session timeout."""
    return request.session_timeout_ms if client.api_version == 0 else request.rebalance_timeout_ms
