"""A rebalance, from the first reason for it until everybody is told the new generation.

Members are asked to join again by their heartbeats; when all have, or the rebalance timeout is over, the generation
begins. A group that was empty waits a while for more members first (KIP-134). Kafka: ``GroupMetadataManager``.
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
    """The membership has changed: begin a rebalance, or end the one under way if now all have joined."""
    if ClassicGroupState.PREPARING_REBALANCE in VALID_TRANSITIONS[group.state]:
        prepare(shard, group, reason)
    else:
        complete_if_all_joined(shard, group)


def prepare(
    shard: GroupShard, group: ClassicGroup, reason: str = "another kind of group has become it"
) -> None:
    """Begin a rebalance: members that wait for an assignment are sent back to join. ``reason`` is for the log."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        drop_assignments(shard, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    timers.cancel_sync(shard, group)
    is_initial = group.state is ClassicGroupState.EMPTY
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, shard.context.now_ms())
    shard.context.log_info(
        "a group rebalances", group=group.group_id, generation=group.generation_id, reason=reason
    )
    if is_initial:
        delay_ms = shard.context.settings().group_initial_rebalance_delay_ms
        wait_for_more(shard, group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
    elif group.all_joined():
        complete(shard, group)
    else:
        timers.set_join(shard, group, group.rebalance_timeout_ms(), lambda: complete(shard, group))


def wait_for_more(shard: GroupShard, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    """Let the first rebalance wait ``delay_ms``, and again while members come, for ``remaining_ms`` more at most."""

    def when_over() -> None:
        if group.new_member_added and remaining_ms != 0:
            group.new_member_added = False
            initial_ms = shard.context.settings().group_initial_rebalance_delay_ms
            wait_for_more(shard, group, min(initial_ms, remaining_ms), max(remaining_ms - delay_ms, 0))
        else:
            complete(shard, group)

    timers.set_join(shard, group, delay_ms, when_over)


def complete_if_all_joined(shard: GroupShard, group: ClassicGroup) -> None:
    """End the join phase where nobody is missing, unless it is a group's first, which waits for its delay."""
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is not ClassicGroupState.EMPTY
        and group.all_joined()
    ):
        complete(shard, group)


def complete(shard: GroupShard, group: ClassicGroup) -> None:
    """The join phase is over: dynamic members that did not join are dropped, the others get their generation.

    Raises what the log raises where nobody is left and that could not be stored. The group is empty all the same:
    the generation before stays stored, and after a restart its members would time out.
    """
    timers.cancel_join(shard, group)
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return
    _drop(
        shard,
        group,
        [
            member.member_id
            for member in group.members.values()
            if member.join_promise is None and member.group_instance_id is None
        ],
        "it did not join again in time",
    )
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none of them is here: they may come back until their sessions end.
        timers.set_join(shard, group, group.rebalance_timeout_ms(), lambda: complete(shard, group))
        return
    group.begin_generation(shard.context.now_ms())
    if group.members:
        _complete_joins(shard, group)
        return
    shard.context.log_info("a group is empty", group=group.group_id, generation=group.generation_id)
    shard.commit([records.metadata_record(group, {})])


def _complete_joins(shard: GroupShard, group: ClassicGroup) -> None:
    """Tell all members their generation, and the leader all members."""
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
    """Members that joined but never asked for their assignment are dropped, and the others join again."""
    if not group.pending_syncs:
        return
    late = [member_id for member_id in group.members if member_id in group.pending_syncs]
    _drop(shard, group, late, "it did not ask for its assignment in time")
    prepare(shard, group, "members did not ask for their assignments")


def _drop(shard: GroupShard, group: ClassicGroup, member_ids: Iterable[str], reason: str) -> None:
    for member_id in member_ids:
        group.remove(member_id)
        timers.cancel_session(shard, group, member_id)
        shard.context.log_info("a member is dropped", group=group.group_id, member=member_id, reason=reason)


def drop_assignments(shard: GroupShard, group: ClassicGroup, code: ErrorCode) -> None:
    """The generation gets no assignment: who waits for one is told ``code``."""
    for member in group.members.values():
        member.assignment = b""
        if responses.complete_sync(member, responses.sync_error(code)):
            timers.renew_session(shard, group, member)
