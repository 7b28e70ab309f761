"""Reconciles one member: moves its current assignment one step towards its target assignment. A pure function.

A member first revokes, in its old epoch, the partitions that it must give up. After it has acknowledged that, it gets
the target's epoch and its new partitions, except those that other members still hold; these follow when they are
released. So no partition ever has two owners. Source: Kafka's ``CurrentAssignmentBuilder``; KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.member import Assignment, ConsumerGroupMember, PartitionEpochs
    from oncelog.wire.schema import Uuid


class OwnedTopic(Protocol):
    """Partitions of a topic that a member owns, as in its request."""

    topic_id: Uuid
    partitions: list[int]


Owned = Sequence[OwnedTopic] | None
"""The partitions that a member owns, as its request reports them; None if the request does not."""

_UNKNOWN_STATE = (
    "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
)


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[Uuid],
    is_held: Callable[[Uuid, int], bool],
    owned: Owned,
    *,
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """The member after one step towards ``target``; ``member`` itself if there is nothing to do.

    ``subscribed``: ids of the topics to which it is subscribed. ``is_held``: whether a member has the partition
    assigned or has yet to revoke it. With ``subscription_changed``, partitions of other topics are revoked at once.
    Raises KafkaError (FENCED_MEMBER_EPOCH) if the member's stored state is unknown.
    """
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return _unsubscribed(member, subscribed, owned) if subscription_changed else member
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.pending_revocation):
            return _unsubscribed(member, subscribed, owned) if subscription_changed else member
    elif member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
        return _advanced(member, target_epoch, target_epoch, target, subscribed, is_held, owned)
    return _advanced(member, member.epoch, target_epoch, target, subscribed, is_held, owned)


def _owns_any(owned: Owned, partitions: PartitionEpochs) -> bool:
    """Whether the member may still own one of the partitions: it reports so, or reports nothing."""
    if owned is None:
        return True
    return any(not partitions.get(row.topic_id, {}).keys().isdisjoint(row.partitions) for row in owned)


def _unsubscribed(
    member: ConsumerGroupMember, subscribed: Collection[Uuid], owned: Owned
) -> ConsumerGroupMember:
    """The member without topics to which it is no longer subscribed; its epoch stays."""
    dropped = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not dropped:
        return member
    assigned = dict(member.assigned)
    pending = dict(member.pending_revocation)
    for topic_id in dropped:
        pending[topic_id] = {**pending.get(topic_id, {}), **assigned.pop(topic_id)}
    if _owns_any(owned, pending):
        return member.with_assignment(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    # It has already given up those partitions.
    return member.with_assignment(member.epoch, member.state, assigned, member.pending_revocation)


def _advanced(
    member: ConsumerGroupMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[Uuid],
    is_held: Callable[[Uuid, int], bool],
    owned: Owned,
) -> ConsumerGroupMember:
    assigned: dict[Uuid, dict[int, int]] = {}
    revoked: dict[Uuid, dict[int, int]] = {}
    added: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset[int]()
        has = member.assigned.get(topic_id, {})
        kept = {partition: at for partition, at in has.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(has):
            revoked[topic_id] = {partition: at for partition, at in has.items() if partition not in kept}
        if len(kept) < len(wanted):
            # The member may keep what it is itself still revoking.
            own = member.pending_revocation.get(topic_id, {})
            missing = sorted(wanted.difference(kept))
            free = [
                partition for partition in missing if partition in own or not is_held(topic_id, partition)
            ]
            waits = waits or len(free) < len(missing)
            if free:
                added[topic_id] = free
    if revoked and _owns_any(owned, revoked):
        return member.with_assignment(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    for topic_id, partitions in added.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.with_assignment(target_epoch, state, assigned, {})
