"""Online migration: a group that has members changes its protocol.

A classic group of consumers is upgraded when a member of the consumer protocol joins, and a consumer group is
downgraded when the last such member leaves; ``group.consumer.migration.policy`` allows either, both or none. Members
keep their assignments. After an upgrade the classic members stay, as `coordinator.groups.consumer.classic_members`
serves them. Source: Kafka's ``GroupMetadataManager``, ``convertToConsumerGroup``, ``convertToClassicGroup``; KIP-848.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import rebalance
from oncelog.coordinator.groups.classic import records as classic_records
from oncelog.coordinator.groups.classic import timers as classic_timers
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.member import ClassicGroupMember, SupportedProtocol
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.groups.consumer import embedded_protocol, records, timers
from oncelog.coordinator.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.stored.groups import ClassicMemberMetadata, ClassicProtocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"


def policy(context: GroupContext) -> str:
    return context.settings().group_consumer_migration_policy.lower()


class FoundGroup:
    """The group of a request. ``records`` create or convert it if it is not stored as a consumer group yet; ``group``
    is then a preview of the result, which callers must not change.
    """

    __slots__ = ("converted", "group", "records")

    def __init__(
        self,
        group: ConsumerGroup,
        records: Sequence[CoordinatorRecord] = (),
        converted: Sequence[ConsumerGroupMember] = (),
    ) -> None:
        self.group = group
        self.records = records
        self.converted = converted

    def after_commit(self, shard: GroupShard) -> None:
        """Start the sessions of converted members that were not replaced at once."""
        group = shard.groups[self.group.group_id]
        if self.converted:
            shard.context.log_info(
                "a classic group becomes a consumer group",
                group=group.group_id,
                members=len(self.converted),
            )
        for member in self.converted:
            if not group.has_member(member.member_id):
                continue
            assert member.classic is not None
            timers.renew_session(
                shard, self.group.group_id, member.member_id, member.classic.session_timeout_ms
            )


# Upgrade


def upgrade(shard: GroupShard, classic: ClassicGroup) -> FoundGroup:
    """Convert a classic group with members to a consumer group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
    group_id = classic.group_id
    refused = f"Cannot upgrade classic group {group_id} to consumer group because "
    if policy(shard.context) not in (BIDIRECTIONAL, UPGRADE):
        raise _not_found(refused + "online upgrade is disabled.")
    if not classic.uses_consumer_protocol():
        raise _not_found(refused + "the group does not use the consumer embedded protocol.")
    if len(classic.members) > shard.context.settings().group_consumer_max_size:
        raise _not_found(refused + "the group size exceeds the consumer group maximum size.")
    protocol = _protocol(classic)
    group = ConsumerGroup(group_id)
    group.epoch = group.target_epoch = classic.generation_id
    try:
        for member in classic.members.values():
            new = _upgraded_member(shard, classic, member, protocol)
            group.put_target(new.member_id, {topic: frozenset(rows) for topic, rows in new.assigned.items()})
            group.put_member(new)
    except DecodeError:
        raise _not_found(refused + "the embedded consumer protocol is malformed.") from None
    except embedded_protocol.CustomAssignorError:
        raise _not_found(
            refused
            + "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade."
        ) from None
    group.metadata_hash = group.volatile.topic_hashes.of_group(group.subscriptions, shard.context.topics)
    members = list(group.members.values())
    return FoundGroup(group, [*classic.tombstones(), *_group_records(group, members)], members)


def _protocol(classic: ClassicGroup) -> str:
    """The protocol whose metadata to read: the generation's, or the next one's if a member no longer supports that."""
    name = classic.protocol_name
    if name is not None and classic.supporters.get(name, 0) == len(classic.members):
        return name
    return classic.selected_protocol() if classic.members else ""


def _not_found(text: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded_member(
    shard: GroupShard, classic: ClassicGroup, member: ClassicGroupMember, protocol: str
) -> ConsumerGroupMember:
    """The member with its subscription, and its assignment in the generation if it has one."""
    subscription = embedded_protocol.subscription(member.metadata(protocol))
    assigned = (
        embedded_protocol.assigned(member.assignment, shard.context.topics) if member.assignment else {}
    )
    epoch = classic.generation_id
    return ConsumerGroupMember(
        member_id=member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned={topic: dict.fromkeys(sorted(rows), epoch) for topic, rows in assigned.items()},
        classic=ClassicMemberMetadata(
            member.session_timeout_ms,
            [ClassicProtocol(name, bytes(metadata)) for name, metadata in member.protocols],
        ),
    )


def _group_records(group: ConsumerGroup, members: Sequence[ConsumerGroupMember]) -> list[CoordinatorRecord]:
    return [
        *(records.member_metadata(group.group_id, member) for member in members),
        records.TYPES.group_epoch(group.group_id, group.epoch, group.metadata_hash),
        *(
            records.TYPES.target_assignment(group.group_id, id_, target)
            for id_, target in group.targets.items()
        ),
        records.TYPES.target_epoch(group.group_id, group.target_epoch, group.target_timestamp_ms),
        *(records.current_assignment(group.group_id, member) for member in members),
    ]


# Downgrade


def is_to_be_downgraded(
    context: GroupContext, group: ConsumerGroup, leaving: Sequence[ConsumerGroupMember]
) -> bool:
    """Whether only members of the classic protocol remain without ``leaving``, and the policy allows the downgrade."""
    remaining = len(group.members) - len(leaving)
    return remaining > 0 and group.all_classic_without(leaving) and _may_downgrade(context, remaining)


def is_replaced_by_classic(
    context: GroupContext, group: ConsumerGroup, holder: ConsumerGroupMember | None
) -> bool:
    """Whether ``holder`` is the last member of the consumer protocol, and the policy allows the downgrade when a
    classic member replaces it.
    """
    return (
        holder is not None
        and not holder.is_classic
        and group.all_classic_without([holder])
        and _may_downgrade(context, len(group.members))
    )


def _may_downgrade(context: GroupContext, members: int) -> bool:
    return policy(context) in (BIDIRECTIONAL, DOWNGRADE) and members <= context.settings().group_max_size


def downgrade(
    shard: GroupShard,
    group: ConsumerGroup,
    *,
    leaving: Sequence[ConsumerGroupMember] = (),
    replaced: ConsumerGroupMember | None = None,
    joining: ConsumerGroupMember | None = None,
    before: Sequence[CoordinatorRecord] = (),
    rebalances: bool = True,
) -> None:
    """Convert the group to a classic one, without ``leaving`` and with ``replaced`` replaced by ``joining``.

    ``before``: records of that replacement. All members get their target assignments; with ``rebalances`` they must
    rejoin.
    """
    gone = {member.member_id for member in leaving}
    remaining = [
        joining
        if replaced is not None and member_id == replaced.member_id and joining is not None
        else member
        for member_id, member in group.members.items()
        if member_id not in gone
    ]
    classic = ClassicGroup(group.group_id)
    for member in remaining:
        classic.add(_downgraded_member(member))
    classic.generation_id = group.epoch
    classic.protocol_name = classic.selected_protocol()
    classic.state_timestamp_ms = shard.context.now_ms()
    assignments = {}
    for member in remaining:
        holder = replaced if replaced is not None and member is joining else member
        assignments[member.member_id] = embedded_protocol.assignment(
            group.targets.get(holder.member_id, {}),
            classic.members[member.member_id].metadata(classic.protocol_name),
            shard.context.topics,
        )
    ids = [
        joining.member_id if joining and replaced and id_ == replaced.member_id else id_
        for id_ in group.members
    ]
    shard.commit(
        [
            *before,
            *records.group_tombstones(group.group_id, ids, group.subscriptions.resolved),
            classic_records.metadata_record(classic, assignments),
        ]
    )
    _complete_classic_group(shard, group.group_id, classic, rebalances=rebalances)


def _downgraded_member(member: ConsumerGroupMember) -> ClassicGroupMember:
    assert member.classic is not None
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        PROTOCOL_TYPE,
        [SupportedProtocol(row.name, bytes(row.metadata)) for row in member.classic.supported_protocols],
    )


def _complete_classic_group(
    shard: GroupShard, group_id: str, classic: ClassicGroup, *, rebalances: bool
) -> None:
    """Complete the volatile state of the replayed group: its members support more protocols than their records have."""
    live = shard.groups[group_id]
    assert isinstance(live, ClassicGroup)
    assert live.state is ClassicGroupState.STABLE
    for member in live.members.values():
        classic_member = classic.members[member.member_id]
        live.update(
            member,
            classic_member.protocols,
            classic_member.rebalance_timeout_ms,
            classic_member.session_timeout_ms,
        )
        classic_timers.renew_session(shard, live, member)
    shard.context.log_info(
        "a consumer group becomes a classic group", group=group_id, members=len(live.members)
    )
    if rebalances:
        rebalance.prepare(shard, live, "its last member of the consumer protocol has gone")
