"""ConsumerGroupHeartbeat: a member joins, stays, acknowledges an assignment, or leaves.

One step updates the member; bumps the group epoch if the group's subscriptions changed; computes a new target
assignment for a new epoch; and moves the member one step towards its target. Source: Kafka's
``GroupCoordinatorService.consumerGroupHeartbeat``, ``GroupMetadataManager.consumerGroupHeartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer import joining, leave, member_update, settings, target, timers
from oncelog.coordinator.groups.consumer.member import STATIC_LEAVING_EPOCH
from oncelog.coordinator.groups.modern.member import JOINING_EPOCH, LEAVING_EPOCH
from oncelog.coordinator.groups.modern.requests import invalid, refuse_blank, refuse_many
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember, PartitionEpochs
    from oncelog.coordinator.groups.context import Client, GroupContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OWN_MEMBER_ID_VERSION = 1
"""From this version on the client generates its member id (KIP-1082)."""

NOT_GIVEN = -1


def check(context: GroupContext, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
    """Check the request without looking at the group. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= OWN_MEMBER_ID_VERSION or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        refuse_blank(request.member_id, "MemberId")
    refuse_blank(request.group_id, "GroupId")
    refuse_blank(request.instance_id, "InstanceId")
    refuse_blank(request.rack_id, "RackId")
    refuse_many(request.subscribed_topic_names)
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == NOT_GIVEN:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.server_assignor is None:
        return
    served = target.served_assignors(context)
    if request.server_assignor not in served:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(served)}.",
        )


def heartbeat(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupHeartbeatResponse:
    """Handle a request that passed `check`.

    Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
    UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION, and errors of the log.
    """
    if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return leave.leave(shard, request)
    return _heartbeat(shard, request, client)


def _heartbeat(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupHeartbeatResponse:
    context, group_id = shard.context, request.group_id
    joins = request.member_epoch == JOINING_EPOCH
    found_group = joining.group_for(shard, group_id, create=joins)
    group = found_group.group
    joining.check_size(context, group, request.member_id, request.instance_id)
    member_id = request.member_id or joining.new_member_id(context)
    replacement: list[CoordinatorRecord] = []
    if request.instance_id is None:
        old = joining.dynamic_member(group, member_id, create=joins)
    else:
        old, replacement = joining.static_member(
            group, member_id, request.instance_id, create=joins, classic=False
        )
    _check_epoch(old, request)
    fields = member_update.MemberFields(
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=request.server_assignor,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        classic=None,
    )
    change = member_update.update_and_reconcile(shard, group, old, fields, client, request.topic_partitions)
    shard.commit([*found_group.records, *replacement, *change.records])
    found_group.after_commit(shard)
    member_update.after_commit(shard, group_id, change)
    timers.renew_session(shard, group_id, member_id)
    return _response(context, request, old, change.member)


def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Check the request's epoch. The previous epoch is valid too: the response with the new one may have been lost."""
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH or epoch == member.epoch:
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_only(request, member.assigned):
        return
    order = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {order} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_only(request: ConsumerGroupHeartbeatRequest, assigned: PartitionEpochs) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        row.topic_id in assigned and assigned[row.topic_id].keys() >= set(row.partitions)
        for row in request.topic_partitions
    )


def _response(
    context: GroupContext,
    request: ConsumerGroupHeartbeatRequest,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
) -> ConsumerGroupHeartbeatResponse:
    """The response. It has the assignment where that changed, and where the request has all fields of the member."""
    is_full_request = (
        request.rebalance_timeout_ms != NOT_GIVEN
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    assignment = None
    if request.member_epoch == JOINING_EPOCH or is_full_request or old.assigned != new.assigned:
        assignment = Assignment(
            [
                TopicPartitions(topic_id, sorted(partitions))
                for topic_id, partitions in new.assigned.items()
                if partitions
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms(context, request.group_id),
        assignment=assignment,
    )
