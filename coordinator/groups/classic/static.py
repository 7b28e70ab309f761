"""Static members (KIP-345): a client that joins with the instance id of a member replaces that member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.classic import join, rebalance, records, responses, timers
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.promise import Promise
    from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

SKIP_ASSIGNMENT_VERSION = 9
"""From this version on the response tells a returning leader that it leads but must not assign (KIP-814)."""


def replace(
    shard: GroupShard, group: ClassicGroup, request: JoinGroupRequest, client: Client, member_id: str
) -> JoinGroupResponse | Promise[JoinGroupResponse]:
    """Replace the member that has the request's instance id by ``member_id``.

    A stable group does not rebalance, unless it would now select another protocol: the new member gets the old one's
    assignment, which is stored under the new member id.
    """
    assert request.group_instance_id is not None
    old = group.members[group.static_members[request.group_instance_id]]
    new = old.replaced_by(
        member_id,
        join.rebalance_timeout_ms(request, client),
        request.session_timeout_ms,
        join.protocols_of(request),
    )
    old_leader = group.leader_id
    if group.state is not ClassicGroupState.STABLE:
        _fence(group, old)
    group.replace(old, new)
    if group.state is ClassicGroupState.STABLE and group.selected_protocol() == group.protocol_name:
        try:
            shard.commit([records.metadata_record(group, group.assignments())])
        except KafkaError as error:
            group.replace(new, old)
            timers.renew_session(shard, group, old)
            return _error_response(group, to_client_error(error).code)
        group.set_subscriptions()
        _hand_over_session(shard, group, old, new)
        return _response_without_rebalance(group, new, old_leader, client)
    _hand_over_session(shard, group, old, new)
    promise = responses.JoinPromise(client.api_version)
    reason = join.reason_of(request)
    group.await_join(new, promise)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        rebalance.complete_if_all_joined(shard, group)
    else:
        rebalance.prepare(shard, group, f"static member {request.group_instance_id} rejoined: {reason}")
    return promise


def _fence(group: ClassicGroup, old: ClassicGroupMember) -> None:
    """Respond with FENCED_INSTANCE_ID to requests of the old member that wait."""
    group.complete_join(old, responses.join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    responses.complete_sync(old, responses.sync_error(ErrorCode.FENCED_INSTANCE_ID))


def _hand_over_session(
    shard: GroupShard, group: ClassicGroup, old: ClassicGroupMember, new: ClassicGroupMember
) -> None:
    """Give the new member's first session the session timeout of the old one."""
    timers.cancel_session(shard, group, old.member_id)
    timers.set_session(shard, group, new.member_id, old.session_timeout_ms)


def _response_without_rebalance(
    group: ClassicGroup, member: ClassicGroupMember, old_leader: str | None, client: Client
) -> JoinGroupResponse:
    """The response where the generation goes on. A leader with an old client gets the old leader's member id, so that
    it does not assign: a stable group would ignore its assignments.
    """
    if client.api_version < SKIP_ASSIGNMENT_VERSION:
        response = responses.joined(group, member.member_id)
        response.leader = old_leader or ""
        return response
    leads = group.is_leader(member.member_id)
    response = responses.joined(group, member.member_id, responses.members_for_leader(group) if leads else ())
    response.skip_assignment = leads
    return response


def _error_response(group: ClassicGroup, code: ErrorCode) -> JoinGroupResponse:
    response = responses.joined(group, "")
    response.error_code = code
    return response
