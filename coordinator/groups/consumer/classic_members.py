"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The broker assigns for them too. Their generation id is their member epoch. Between two joins they cannot be told to
revoke partitions, so every change makes them rejoin: JoinGroup reports the partitions that they own, and SyncGroup
returns the new assignment. No request waits. Source: Kafka's ``GroupMetadataManager``,
``classicGroup…ToConsumerGroup``; KIP-848.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.classic import responses
from oncelog.coordinator.groups.consumer import (
    embedded_protocol,
    joining,
    leave,
    member_update,
    migration,
    target,
    timers,
)
from oncelog.coordinator.groups.consumer.group import PROTOCOL_TYPE
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.coordinator.groups.modern.timers import cancel
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import TopicPartitions
from oncelog.wire.messages.heartbeat import HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse
from oncelog.wire.stored.groups import ClassicMemberMetadata, ClassicProtocol

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.messages.heartbeat import HeartbeatRequest
    from oncelog.wire.messages.join_group import JoinGroupRequest
    from oncelog.wire.messages.leave_group import LeaveGroupRequest
    from oncelog.wire.messages.sync_group import SyncGroupRequest
    from oncelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

MEMBER_ID_REQUIRED_VERSION = 4
NO_REBALANCE_TIMEOUT_VERSION = 0
SEVERAL_MEMBERS_VERSION = 3


# JoinGroup


def join(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, client: Client
) -> JoinGroupResponse:
    """Let a member of the classic protocol join a consumer group that is not empty."""
    try:
        return _join(shard, group, request, client)
    except KafkaError as error:
        return responses.join_error(to_client_error(error).code)


def _join(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, client: Client
) -> JoinGroupResponse:
    context, instance_id = shard.context, request.group_instance_id
    if migration.policy(context) == migration.DISABLED:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id
    member_id = request.member_id or joining.new_member_id(context)
    joining.check_size(context, group, member_id, instance_id)
    names = [protocol.name for protocol in request.protocols]
    if not group.supports_classic_protocols(request.protocol_type, names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if is_new and instance_id is None and client.api_version >= MEMBER_ID_REQUIRED_VERSION:
        return responses.join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    replacement: list[CoordinatorRecord] = []
    if instance_id is None:
        old = joining.dynamic_member(group, member_id, create=True)
    else:
        old, replacement = joining.static_member(group, member_id, instance_id, create=is_new, classic=True)
    holder = group.static_member(instance_id)
    subscription = _subscription(request)
    owned = _owned(shard, subscription)
    update = member_update.update_member(
        shard, group, old, _member_fields(request, subscription, client), client
    )
    if holder is not None and migration.is_replaced_by_classic(context, group, holder):
        member = _join_downgraded(shard, group, update, holder, replacement, owned)
    else:
        target_assignment = target.get_or_compute(
            shard, group, update.epoch, old, update.new, update.subscriptions
        )
        update.records.extend(target_assignment.records)
        change = member_update.reconcile_member(
            context, group, update, target_assignment.epoch, target_assignment.assignment, owned
        )
        shard.commit([*replacement, *change.records])
        member_update.after_commit(shard, group.group_id, change)
        cancel(shard, timers.JOIN, group.group_id, member_id)
        timers.renew_session(shard, group.group_id, member_id, request.session_timeout_ms)
        timers.await_sync(shard, group.group_id, member_id, _rebalance_timeout_ms(request, client))
        member = change.member
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
        member_id=member.member_id,
    )


def _join_downgraded(
    shard: GroupShard,
    group: ConsumerGroup,
    update: member_update.MemberUpdate,
    holder: ConsumerGroupMember,
    replacement: list[CoordinatorRecord],
    owned: list[TopicPartitions],
) -> ConsumerGroupMember:
    """The last member of the consumer protocol has returned with the classic protocol: convert the group to a
    classic one.
    """
    rebalances = group.target_epoch < update.epoch
    member, new_records = update.new, update.records
    if not rebalances:
        assignment = group.target(update.new)
        change = member_update.reconcile_member(
            shard.context, group, update, group.target_epoch, assignment, owned
        )
        member, new_records = change.member, change.records
    migration.downgrade(
        shard,
        group,
        replaced=holder,
        joining=member,
        before=[*replacement, *new_records],
        rebalances=rebalances,
    )
    return member


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription in the first protocol's metadata; all have the same one. Raises KafkaError
    (INCONSISTENT_GROUP_PROTOCOL).
    """
    try:
        return embedded_protocol.subscription(request.protocols[0].metadata)
    except DecodeError:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def _owned(shard: GroupShard, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
    rows = ((row.topic, row.partitions) for row in subscription.owned_partitions)
    by_id = embedded_protocol.with_ids(rows, shard.context.topics)
    return [TopicPartitions(topic_id, partitions) for topic_id, partitions in by_id.items()]


def _member_fields(
    request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, client: Client
) -> member_update.MemberFields:
    return member_update.MemberFields(
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, client),
        assignor=None,
        topic_names=subscription.topics,
        topic_regex="",
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            [ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        ),
    )


def _rebalance_timeout_ms(request: JoinGroupRequest, client: Client) -> int:
    if client.api_version == NO_REBALANCE_TIMEOUT_VERSION:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


# SyncGroup and Heartbeat


def sync(
    shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest, client: Client
) -> SyncGroupResponse:
    """The response with the member's assignment, which its JoinGroup has computed."""
    try:
        return _sync(shard, group, request)
    except KafkaError as error:
        return responses.sync_error(error.code)


def _sync(shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    member, classic = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    first = classic.supported_protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, first.name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that must revoke partitions has just joined, and must rejoin only after it has revoked them.
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        timers.await_join(shard, group.group_id, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    cancel(shard, timers.SYNC, group.group_id, member.member_id)
    timers.renew_session(shard, group.group_id, member.member_id, classic.session_timeout_ms)
    assigned = {topic_id: list(partitions) for topic_id, partitions in member.assigned.items()}
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded_protocol.assignment(assigned, first.metadata, shard.context.topics),
    )


def heartbeat(
    shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest, client: Client
) -> HeartbeatResponse:
    """Renew the member's session; REBALANCE_IN_PROGRESS in the response if it must rejoin.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member, classic = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    timers.renew_session(shard, group.group_id, member.member_id, classic.session_timeout_ms)
    released = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
    # Only a join or a ConsumerGroupHeartbeat computes a new target assignment: without consumers, a classic member must
    # join.
    unassigned = group.epoch > group.target_epoch and group.classic_count == len(group.members)
    behind = unassigned or member.epoch < group.target_epoch
    if behind or member.state is MemberState.UNREVOKED_PARTITIONS or released:
        timers.await_join(shard, group.group_id, member)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    """The member and its classic metadata. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION.
    """
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = joining.member_of_instance(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    if member.epoch != generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


# LeaveGroup


def remove(
    shard: GroupShard, group: ConsumerGroup, request: LeaveGroupRequest, client: Client
) -> LeaveGroupResponse:
    """Remove members of either protocol in one step; the response has a row for each. A static member needs no member
    id.
    """
    rows = []
    leaving: dict[str, ConsumerGroupMember] = {}
    several = client.api_version >= SEVERAL_MEMBERS_VERSION
    for identity in request.members if several else [MemberIdentity(request.member_id)]:
        code = ErrorCode.NONE
        try:
            member = _member_to_remove(group, identity)
            leaving[member.member_id] = member
        except KafkaError as error:
            code = error.code
        rows.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    leave.fence(shard, group, list(leaving.values()))
    return LeaveGroupResponse(members=rows)


def _member_to_remove(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    holder = group.static_member(instance_id)
    # An administrator may omit the member id.
    member_id = identity.member_id or (holder.member_id if holder is not None else "")
    return joining.member_of_instance(holder, member_id, instance_id)
