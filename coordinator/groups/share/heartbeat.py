"""ShareGroupHeartbeat: a member joins, stays, or leaves.

One step updates the member; bumps the group epoch if the group's subscriptions or its initialized partitions changed;
computes a new target assignment for a new epoch; and gives the member its target at once, since members share
partitions. It also says which partitions' state is to be initialized. Source: Kafka's
``GroupCoordinatorService.shareGroupHeartbeat``, ``GroupMetadataManager.shareGroupHeartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.modern import group_epoch
from oncelog.coordinator.groups.modern.member import JOINING_EPOCH, LEAVING_EPOCH, MemberState
from oncelog.coordinator.groups.modern.requests import invalid, refuse_blank, refuse_many
from oncelog.coordinator.groups.modern.target import topic_ids
from oncelog.coordinator.groups.share import leave, records, settings, target, timers
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.initialization import Initialization, initialization
from oncelog.coordinator.groups.share.member import ShareGroupMember
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import Client, GroupContext
    from oncelog.coordinator.groups.modern.target import TargetAssignment
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class HeartbeatResult(NamedTuple):
    """The response, and the partitions whose state is now to be initialized, None if there are none."""

    response: ShareGroupHeartbeatResponse
    initialization: Initialization | None


def check(request: ShareGroupHeartbeatRequest) -> None:
    """Check the request without looking at the group. Raises KafkaError (INVALID_REQUEST)."""
    refuse_blank(request.member_id, "MemberId")
    refuse_blank(request.group_id, "GroupId")
    refuse_blank(request.rack_id, "RackId")
    refuse_many(request.subscribed_topic_names)
    if request.member_epoch == JOINING_EPOCH:
        if not request.subscribed_topic_names:
            raise invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING_EPOCH:
        raise invalid("MemberEpoch is invalid.")


def heartbeat(shard: GroupShard, request: ShareGroupHeartbeatRequest, client: Client) -> HeartbeatResult:
    """Handle a request that passed `check`.

    Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, and errors of
    the log.
    """
    if request.member_epoch == LEAVING_EPOCH:
        return HeartbeatResult(leave.leave(shard, request), None)
    context, group_id, member_id = shard.context, request.group_id, request.member_id
    joins = request.member_epoch == JOINING_EPOCH
    if not joins and group_id not in shard.groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    if joins and (other := shard.groups.get(group_id)) is not None and not isinstance(other, ShareGroup):
        context.other_type(group_id, other.group_type, "share")
    group = group_or_new(shard, group_id)
    _check_size(context, group, member_id)
    is_new = member_id not in group.members
    old = ShareGroupMember(member_id) if joins and is_new else group.member(member_id)
    _check_epoch(old, request.member_epoch)
    new = _updated(old, request, client)
    new_records = [] if new == old else [records.member_metadata(group_id, new)]
    rebalances = new.topic_names != old.topic_names
    subscriptions = group.subscriptions
    if rebalances:
        subscriptions = subscriptions.copy()
        subscriptions.replace(old, new)
    if group.target_epoch >= group.epoch:
        rebalances = rebalances or group.has_unassigned()
    epoch = group_epoch.after(context, group, subscriptions, rebalances=rebalances)
    new_records += epoch.records
    target_assignment = target.get_or_compute(shard, group, epoch.epoch, new, subscriptions)
    new_records += target_assignment.records
    member = _reconciled(context, new, target_assignment, changed=epoch.epoch > group.epoch)
    if member != new:
        new_records.append(records.current_assignment(group_id, member))
    initialize = initialization(context, group, epoch.epoch, subscriptions)
    if initialize is not None:
        new_records.append(initialize.record)
    shard.commit(new_records)
    if epoch.checked_metadata:
        group.volatile.metadata_checked = True
    if is_new:
        context.log_info("a member joins", group=group_id, member=member_id, protocol="share")
    timers.renew_session(shard, group_id, member_id)
    return HeartbeatResult(_response(context, request, old, member), initialize)


def share_group(shard: GroupShard, group_id: str) -> ShareGroup:
    """The share group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
    group = shard.group(group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def group_or_new(shard: GroupShard, group_id: str) -> ShareGroup:
    """The share group, or a new one, which the shard has not. Raises KafkaError (GROUP_ID_NOT_FOUND) for a group of
    another type.
    """
    return share_group(shard, group_id) if group_id in shard.groups else ShareGroup(group_id)


def _check_size(context: GroupContext, group: ShareGroup, member_id: str) -> None:
    """Raise KafkaError (GROUP_MAX_SIZE_REACHED) for a new member of a full group."""
    limit = context.settings().group_share_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {limit} members.",
        )


def _check_epoch(member: ShareGroupMember, epoch: int) -> None:
    """Check the request's epoch. The previous epoch is valid too: the response with the new one may have been lost."""
    if epoch in (JOINING_EPOCH, member.epoch, member.previous_epoch) and epoch <= member.epoch:
        return
    order = "greater" if epoch > member.epoch else "smaller"
    previous = (
        ""
        if epoch > member.epoch
        else f", and it does not match the previous member epoch ({member.previous_epoch})"
    )
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {order} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}){previous}. The member must abandon all its partitions and rejoin.",
    )


def _updated(old: ShareGroupMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareGroupMember:
    names = request.subscribed_topic_names
    return old._replace(
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        topic_names=old.topic_names if names is None else frozenset(names),
        client_id=client.client_id,
        client_host=client.client_host,
    )


def _reconciled(
    context: GroupContext, member: ShareGroupMember, target: TargetAssignment, *, changed: bool
) -> ShareGroupMember:
    """The member with its target assignment, as far as it is subscribed to it. With ``changed``, the group's
    subscriptions did. Source: Kafka's ``ShareGroupAssignmentBuilder``.
    """
    if target.epoch == member.epoch and not changed:
        return member
    subscribed = topic_ids(member.topic_names, context.topics)
    assigned = target.assignment
    if any(topic_id not in subscribed for topic_id in assigned):
        assigned = {topic_id: rows for topic_id, rows in assigned.items() if topic_id in subscribed}
    if target.epoch == member.epoch:
        return member._replace(assigned=assigned)
    return member._replace(
        epoch=target.epoch, previous_epoch=member.epoch, state=MemberState.STABLE, assigned=assigned
    )


def _response(
    context: GroupContext, request: ShareGroupHeartbeatRequest, old: ShareGroupMember, new: ShareGroupMember
) -> ShareGroupHeartbeatResponse:
    """The response. It has the assignment where that changed, and where the request has all fields of the member."""
    assignment = None
    if (
        request.member_epoch == JOINING_EPOCH
        or request.subscribed_topic_names is not None
        or old.assigned != new.assigned
    ):
        assignment = Assignment(
            [TopicPartitions(topic_id, sorted(rows)) for topic_id, rows in new.assigned.items() if rows]
        )
    return ShareGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms(context, request.group_id),
        assignment=assignment,
    )
