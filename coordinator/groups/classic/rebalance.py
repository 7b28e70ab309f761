"""A rebalance, from its first reason until every member has the response with the new generation.

Heartbeat responses tell members to rejoin. When all have, or after the rebalance timeout, the generation begins. A
group that was empty first waits ``group.initial.rebalance.delay.ms`` for more members (KIP-134). Kafka:
``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import records, responses, timers
from oncelog.coordinator.groups.classic.states import VALID_TRANSITIONS, ClassicGroupState
from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.shard import GroupShard


def prepare_or_complete(shard: GroupShard, group: ClassicGroup, reason: str) -> None:
    """The membership has changed: begin a rebalance, or complete the running one if all members have joined."""
    if ClassicGroupState.PREPARING_REBALANCE in VALID_TRANSITIONS[group.state]:
        prepare(shard, group, reason)
    else:
        complete_if_all_joined(shard, group)


def prepare(shard: GroupShard, group: ClassicGroup, reason: str = "the group was converted") -> None:
    """Begin a rebalance: members that wait for an assignment must rejoin. ``reason`` is for the broker's own log."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        clear_assignments(shard, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    timers.cancel_sync(shard, group)
    is_initial = group.state is ClassicGroupState.EMPTY
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, shard.context.now_ms())
    shard.context.log_info(
        "a group rebalances", group=group.group_id, generation=group.generation_id, reason=reason
    )
    if is_initial:
        delay_ms = shard.context.settings().group_initial_rebalance_delay_ms
        delay_first_rebalance(shard, group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
    elif group.all_joined():
        complete(shard, group)
    else:
        timers.set_join(shard, group, group.rebalance_timeout_ms(), lambda: _complete_late(shard, group))


def delay_first_rebalance(shard: GroupShard, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    """Delay the first rebalance by ``delay_ms``, and again while members join, by at most ``remaining_ms`` more."""

    def on_delay_over() -> None:
        if group.new_member_added and remaining_ms != 0:
            group.new_member_added = False
            initial_ms = shard.context.settings().group_initial_rebalance_delay_ms
            delay_first_rebalance(
                shard, group, min(initial_ms, remaining_ms), max(remaining_ms - delay_ms, 0)
            )
        else:
            _complete_late(shard, group)

    timers.set_join(shard, group, delay_ms, on_delay_over)


def _complete_late(shard: GroupShard, group: ClassicGroup) -> None:
    """The time to join is over. Raises KafkaError as `complete`."""
    shard.context.timer_event("join phase ended", group=group.group_id)
    complete(shard, group)


def complete_if_all_joined(shard: GroupShard, group: ClassicGroup) -> None:
    """Complete the join phase if all members have joined, unless it is the delayed first one of an empty group."""
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is not ClassicGroupState.EMPTY
        and group.all_joined()
    ):
        complete(shard, group)


def complete(shard: GroupShard, group: ClassicGroup) -> None:
    """Complete the join phase: remove dynamic members that did not join and begin the next generation.

    Raises KafkaError if no member is left and that could not be stored. The group is empty all the same; after a
    restart the members of the generation that is still stored would time out.
    """
    timers.cancel_join(shard, group)
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return
    _remove_members(
        shard,
        group,
        [
            member.member_id
            for member in group.members.values()
            if member.join_promise is None and member.group_instance_id is None
        ],
        "did not join again in time",
    )
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has joined: they may return until their sessions expire.
        timers.set_join(shard, group, group.rebalance_timeout_ms(), lambda: _complete_late(shard, group))
        return
    group.begin_generation(shard.context.now_ms())
    if group.members:
        _complete_joins(shard, group)
        return
    shard.context.log_info("a group is empty", group=group.group_id, generation=group.generation_id)
    shard.commit([records.metadata_record(group, {})])


def _complete_joins(shard: GroupShard, group: ClassicGroup) -> None:
    """Complete all JoinGroups: every member gets the generation, the leader also all members."""
    shard.context.log_info(
        "a generation begins",
        group=group.group_id,
        generation=group.generation_id,
        members=len(group.members),
        protocol=group.protocol_name,
        leader=group.leader_id,
    )
    for member in list(group.members.values()):
        members = responses.members_for_leader(group) if group.is_leader(member.member_id) else ()
        group.complete_join(member, responses.joined(group, member.member_id, members))
        timers.renew_session(shard, group, member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    timers.set_sync(shard, group, group.rebalance_timeout_ms(), lambda: expire_syncs(shard, group))


def expire_syncs(shard: GroupShard, group: ClassicGroup) -> None:
    """Remove members that joined but did not send SyncGroup in time; the others must rejoin."""
    if not group.pending_syncs:
        return
    late = [member_id for member_id in group.members if member_id in group.pending_syncs]
    _remove_members(shard, group, late, "did not send SyncGroup in time")
    prepare(shard, group, "members did not send SyncGroup in time")


def _remove_members(shard: GroupShard, group: ClassicGroup, member_ids: Iterable[str], reason: str) -> None:
    for member_id in member_ids:
        group.remove(member_id)
        timers.cancel_session(shard, group, member_id)
        shard.context.note_dropped(group.group_id, member_id, reason)


def clear_assignments(shard: GroupShard, group: ClassicGroup, code: ErrorCode) -> None:
    """Clear all assignments and complete waiting SyncGroups with ``code``."""
    for member in group.members.values():
        member.assignment = b""
        if responses.complete_sync(member, responses.sync_error(code)):
            timers.renew_session(shard, group, member)
