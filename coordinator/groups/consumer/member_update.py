"""Processes a member's request: updates its fields, the group epoch and the target assignment, and reconciles it.

Used for ConsumerGroupHeartbeat and for JoinGroup of classic members. These functions only compute records; state
changes when the caller commits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.consumer import records, regex, target, timers
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.reconcile import reconcile
from oncelog.coordinator.groups.modern import group_epoch
from oncelog.coordinator.groups.modern.target import topic_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.consumer.member import Assignment, ConsumerGroupMember
    from oncelog.coordinator.groups.consumer.reconcile import Owned
    from oncelog.coordinator.groups.context import Client, GroupContext, Topics
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.stored.groups import ClassicMemberMetadata

NOT_GIVEN = -1


class MemberFields(NamedTuple):
    """A member's fields in a request. None (the timeout: -1) means unchanged, but ``classic`` None means the
    consumer protocol.
    """

    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    topic_names: Sequence[str] | None
    topic_regex: str | None
    classic: ClassicMemberMetadata | None

    def applied_to(self, member: ConsumerGroupMember, client: Client) -> ConsumerGroupMember:
        return member._replace(
            instance_id=member.instance_id if self.instance_id is None else self.instance_id,
            rack_id=member.rack_id if self.rack_id is None else self.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms
                if self.rebalance_timeout_ms == NOT_GIVEN
                else self.rebalance_timeout_ms
            ),
            assignor=member.assignor if self.assignor is None else self.assignor,
            topic_names=member.topic_names if self.topic_names is None else frozenset(self.topic_names),
            topic_regex=member.topic_regex if self.topic_regex is None else self.topic_regex,
            client_id=client.client_id,
            client_host=client.client_host,
            classic=self.classic,
        )


class MemberChange(NamedTuple):
    """The changed member and the records to commit.

    ``updated``: the member before its reconciliation. ``epoch``: the group epoch. ``checked_metadata``: the group's
    metadata hash was computed. ``resolves_for``: the client for which the group's
    expressions must be resolved.
    """

    is_new: bool
    updated: ConsumerGroupMember
    member: ConsumerGroupMember
    records: list[CoordinatorRecord]
    epoch: int
    checked_metadata: bool
    resolves_for: Client | None


class MemberUpdate(NamedTuple):
    """The updated member, not yet reconciled, and the updated group: ``subscriptions`` and ``epoch``."""

    old: ConsumerGroupMember
    new: ConsumerGroupMember
    records: list[CoordinatorRecord]
    subscriptions: Subscriptions
    epoch: int
    changed: bool
    checked_metadata: bool
    resolves_for: Client | None


def update_and_reconcile(
    shard: GroupShard,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    fields: MemberFields,
    client: Client,
    owned: Owned,
) -> MemberChange:
    """Update ``old`` with ``fields`` and reconcile it. Raises KafkaError: INVALID_REGULAR_EXPRESSION,
    FENCED_MEMBER_EPOCH.
    """
    update = update_member(shard, group, old, fields, client)
    target_assignment = target.get_or_compute(
        shard, group, update.epoch, old, update.new, update.subscriptions
    )
    update.records.extend(target_assignment.records)
    return reconcile_member(
        shard.context, group, update, target_assignment.epoch, target_assignment.assignment, owned
    )


def update_member(
    shard: GroupShard, group: ConsumerGroup, old: ConsumerGroupMember, fields: MemberFields, client: Client
) -> MemberUpdate:
    """Update ``old`` with ``fields``, and the group epoch. Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
    context = shard.context
    new = fields.applied_to(old, client)
    new_records = []
    if new != old:
        new_records.append(records.member_metadata(group.group_id, new))
    regex_change = regex.change(shard, group, old, new)
    new_records += regex_change.records
    names_changed = new.topic_names != old.topic_names
    if fields.classic is None:
        rebalances = (
            names_changed or regex_change.rebalances or target.changes_assignor(context, group, old, new)
        )
    else:
        rebalances = names_changed or regex_change.changed
    if new.topic_names is old.topic_names and not regex_change.changed:
        subscriptions = group.subscriptions
    else:
        subscriptions = group.subscriptions.without_last_of(old, new)
    epoch = group_epoch.after(context, group, subscriptions, rebalances=rebalances)
    new_records += epoch.records
    if epoch.checked_metadata and group.has_subscription_metadata:
        new_records.append(records.subscription_metadata_tombstone(group.group_id))
    changed = names_changed or regex_change.changed
    return MemberUpdate(
        old,
        new,
        new_records,
        subscriptions,
        epoch.epoch,
        changed,
        epoch.checked_metadata,
        client if regex_change.resolves else None,
    )


def reconcile_member(
    context: GroupContext,
    group: ConsumerGroup,
    update: MemberUpdate,
    target_epoch: int,
    target_assignment: Assignment,
    owned: Owned,
) -> MemberChange:
    """Reconcile the updated member to ``target_assignment``."""
    member = update.new
    if update.changed or not member.is_reconciled_to(target_epoch):
        member = reconcile(
            member,
            target_epoch,
            target_assignment,
            _subscribed(group, member, context.topics),
            group.is_held,
            owned,
            subscription_changed=update.changed,
        )
    new_records = update.records
    if member != update.new:
        new_records.append(records.current_assignment(group.group_id, member))
    return MemberChange(
        update.old.member_id not in group.members,
        update.new,
        member,
        new_records,
        update.epoch,
        update.checked_metadata,
        update.resolves_for,
    )


def _subscribed(group: ConsumerGroup, member: ConsumerGroupMember, topics: Topics) -> dict[bytes, int]:
    return topic_ids(group.subscriptions.topics_of(member), topics)


def after_commit(shard: GroupShard, group_id: str, change: MemberChange) -> None:
    """Update volatile state and timers once the records are committed."""
    if change.member != change.updated:
        timers.update_rebalance_timeout(shard, group_id, change.member)
    group = shard.groups.get(group_id)
    if change.is_new:
        shard.context.log_info(
            "a member joins",
            group=group_id,
            member=change.member.member_id,
            protocol="classic" if change.member.is_classic else "consumer",
        )
    if change.checked_metadata and isinstance(group, ConsumerGroup):
        group.volatile.metadata_checked = True
    if change.resolves_for is not None:
        regex.resolve_soon(shard, group_id, change.resolves_for)
