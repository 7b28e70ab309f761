"""What follows when a member says something of itself: epoch, target assignment, the member's next step.

The same for a heartbeat and for a JoinGroup of a member of the classic protocol. It computes; nothing has changed until
the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.consumer import records, regex, target, timeouts
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.consumer.member import Assignment, Member
    from oncelog.coordinator.groups.consumer.reconcile import Owned
    from oncelog.coordinator.groups.consumer.subscriptions import Subscriptions
    from oncelog.coordinator.groups.context import Client, GroupContext, Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.stored.groups import ClassicMemberMetadata

NOT_GIVEN = -1


class Said(NamedTuple):
    """What a request says of its member; None (for the timeout -1): as before. ``classic``: None ends that."""

    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    topic_names: Sequence[str] | None
    topic_regex: str | None
    classic: ClassicMemberMetadata | None

    def of(self, member: Member, client: Client) -> Member:
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


class Change(NamedTuple):
    """The member as it is to be, and the records that make it so.

    ``described``: it before its reconciliation. ``epoch``: the group's. ``checked_metadata``: the hash of the group's
    topics was computed anew. ``resolves``: its expressions are to be resolved.
    """

    is_new: bool
    described: Member
    member: Member
    records: list[CoordinatorRecord]
    epoch: int
    checked_metadata: bool
    resolves: bool


class Description(NamedTuple):
    """The first half: what the group is once the member is what it says."""

    old: Member
    new: Member
    records: list[CoordinatorRecord]
    subscriptions: Subscriptions
    epoch: int
    changed: bool
    checked_metadata: bool
    resolves: bool


def take_in(
    shard: GroupShard, group: ConsumerGroup, old: Member, said: Said, client: Client, owned: Owned
) -> Change:
    """``old`` says something of itself. Raises KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH."""
    described = describe(shard, group, old, said, client)
    wanted = target.up_to_date(
        shard.context, group, described.epoch, old, described.new, described.subscriptions
    )
    described.records.extend(wanted.records)
    return advance(shard.context, group, described, wanted.epoch, wanted.assignment, owned)


def describe(shard: GroupShard, group: ConsumerGroup, old: Member, said: Said, client: Client) -> Description:
    """What ``old`` says, and the group's epoch by it."""
    context = shard.context
    new = said.of(old, client)
    made = []
    if new != old:
        made.append(records.member(group.group_id, new))
    by_regex = regex.change(shard, group, old, new)
    made += by_regex.records
    names_changed = new.topic_names != old.topic_names
    rebalances = names_changed or by_regex.rebalances
    if said.classic is not None:
        rebalances = names_changed or by_regex.changed
    if new.topic_names is old.topic_names and not by_regex.changed:
        subscriptions = group.subscriptions
    else:
        subscriptions = group.subscriptions.without_last_of(old, new)
    epoch = group.epoch
    checks = rebalances or not group.volatile.metadata_checked
    if checks:
        found = group.volatile.topic_hashes.of_group(subscriptions.topics, context.topics)
        if rebalances or found != group.metadata_hash:
            epoch += 1
            made.append(records.group_epoch(group.group_id, epoch, found))
        if group.has_subscription_metadata:
            made.append(records.no_subscription_metadata(group.group_id))
    changed = names_changed or by_regex.changed
    return Description(old, new, made, subscriptions, epoch, changed, checks, by_regex.resolves)


def advance(
    context: GroupContext,
    group: ConsumerGroup,
    described: Description,
    target_epoch: int,
    wanted: Assignment,
    owned: Owned,
) -> Change:
    """The member's next step towards its target."""
    member = described.new
    if described.changed or not member.is_reconciled_to(target_epoch):
        member = reconcile(
            member,
            target_epoch,
            wanted,
            _subscribed(group, member, context.topics),
            group.is_held,
            owned,
            subscription_changed=described.changed,
        )
    made = described.records
    if member != described.new:
        made.append(records.current(group.group_id, member))
    return Change(
        described.old.member_id not in group.members,
        described.new,
        member,
        made,
        described.epoch,
        described.checked_metadata,
        described.resolves,
    )


def _subscribed(group: ConsumerGroup, member: Member, topics: Topics) -> dict[bytes, int]:
    return target.topic_ids(group.subscriptions.topics_of(member), topics)


def after_commit(shard: GroupShard, group_id: str, change: Change) -> None:
    """What is not stored follows what is."""
    if change.member != change.described:
        timeouts.follow(shard, group_id, change.member)
    group = shard.groups.get(group_id)
    if change.is_new:
        shard.context.note(
            "a member joins",
            group=group_id,
            member=change.member.member_id,
            protocol="classic" if change.member.is_classic else "consumer",
        )
    if change.checked_metadata and isinstance(group, ConsumerGroup):
        group.volatile.metadata_checked = True
    if change.resolves:
        regex.resolve_soon(shard, group_id)
