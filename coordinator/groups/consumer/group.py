"""`ConsumerGroup`: the state of a group of the consumer protocol.

The durable fields change only in the ``replay`` modules, through the methods under "replay". Source: Kafka's
``ConsumerGroup``; KIP-848, KIP-1251.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.consumer import records, timers
from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
from oncelog.coordinator.groups.consumer.states import ConsumerGroupState
from oncelog.coordinator.groups.group import CONSUMER, allow_any_partition
from oncelog.coordinator.groups.modern.group import ModernGroup, VolatileState
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
MEMBER_EPOCH_VERSION = 9
"""The first version of OffsetCommit in which the generation id may be a member epoch."""


class VolatileGroupState(VolatileState):
    """``regexes_outdated``: whether topics may have been created since the expressions were resolved."""

    __slots__ = ("regexes_outdated",)

    def __init__(self) -> None:
        super().__init__()
        self.regexes_outdated = False


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """``holders``: topic id -> partition -> the member that has it assigned, or has yet to revoke it.
    ``target_owners``: the same of the target assignment.
    """

    group_type = CONSUMER
    protocol_type = PROTOCOL_TYPE
    expires = True
    record_types = records.TYPES
    volatile: VolatileGroupState

    __slots__ = (
        "assignors",
        "classic_count",
        "classic_protocols",
        "has_subscription_metadata",
        "holders",
        "target_owners",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, VolatileGroupState())
        self.assignors: dict[str, int] = {}
        self.classic_count = 0
        self.classic_protocols: dict[str, int] = {}
        self.holders: dict[Uuid, dict[int, str]] = {}
        self.target_owners: dict[Uuid, dict[int, str]] = {}
        self.has_subscription_metadata = False

    # --- queries

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def target(self, member: ConsumerGroupMember) -> Assignment:
        """The member's target assignment; for a static member, that of the present holder of its instance id."""
        if member.instance_id is None:
            return self.targets.get(member.member_id, {})
        holder = self.static_members.get(member.instance_id)
        return {} if holder is None else self.targets.get(holder, {})

    def is_held(self, topic_id: Uuid, partition: int) -> bool:
        held = self.holders.get(topic_id)
        return held is not None and partition in held

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether other members still hold partitions of the member's target assignment."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.targets.get(member.member_id, {}).items():
            has = member.assigned.get(topic_id, {})
            if any(self.is_held(topic_id, partition) for partition in partitions if partition not in has):
                return True
        return False

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The server-side assignor that most members prefer, with ``old`` replaced by ``new``. Of two with as many, the
        last by name: "uniform", as in Kafka, where it stands first in a hash table.
        """
        counts = self.assignors
        if old is not None or new is not None:
            counts = dict(counts)
            _count(counts, [old.assignor] if old is not None else [], -1)
            _count(counts, [new.assignor] if new is not None else [], 1)
        return max(sorted(counts, reverse=True), key=counts.__getitem__, default=None)

    def all_classic_without(self, leaving: Iterable[ConsumerGroupMember]) -> bool:
        """Whether all members but ``leaving`` use the classic protocol."""
        without = list(leaving)
        classic = self.classic_count - sum(member.is_classic for member in without)
        return classic == len(self.members) - len(without)

    def supports_classic_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a classic member may join with these protocols: all classic members must support one of them."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        if self.is_empty():
            return bool(names)
        return any(self.classic_protocols.get(name, 0) == self.classic_count for name in names)

    # --- coordinator.groups.group.Group

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> Callable[[str, Uuid, int], None]:
        """As in `Group`. A member with an older epoch may commit offsets of partitions that it had at that epoch."""
        if generation_or_epoch < 0 and not self.members:
            return allow_any_partition
        anonymous = generation_or_epoch == NO_GENERATION and not member_id and group_instance_id is None
        if transactional and anonymous:
            return allow_any_partition
        member = self.member(member_id)
        if not transactional and not member.is_classic and api_version < MEMBER_EPOCH_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation_or_epoch == member.epoch:
            return allow_any_partition
        if generation_or_epoch > member.epoch:
            what = "generation id" if member.is_classic else "member epoch"
            raise _stale(
                member,
                f"Received {what} {generation_or_epoch} is newer than current member epoch {member.epoch}.",
            )
        return lambda topic, topic_id, partition: _check_partition(
            member, generation_or_epoch, topic, topic_id, partition
        )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            what = "generation id" if member.is_classic else "member epoch"
            raise _stale(
                member,
                f"The received {what} {member_epoch} does not match the expected member epoch {member.epoch}.",
            )

    def check_offset_delete(self) -> None:
        pass

    def offset_expires_at(self, commit_timestamp_ms: int, retention_ms: int) -> int | None:
        return commit_timestamp_ms + retention_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, self.members, self.subscriptions.resolved)

    def on_loaded(self, shard: GroupShard) -> None:
        self.volatile.regexes_outdated = True
        timers.start_all(shard, self)

    def on_removed(self, shard: GroupShard) -> None:
        super().on_removed(shard)
        timers.cancel_group(shard, self)

    def on_topics_changed(self, shard: GroupShard, topics: Collection[str]) -> None:
        super().on_topics_changed(shard, topics)
        if self.subscriptions.regexes and not self.subscriptions.names().issuperset(topics):
            self.volatile.regexes_outdated = True

    # --- replay

    def on_member_changed(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        super().on_member_changed(old, new)
        former_id = None if old is None else old.instance_id
        if old is not None and former_id is not None and self.static_members.get(former_id) == old.member_id:
            del self.static_members[former_id]
        if new is not None and new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        if old is not None:
            _count(self.assignors, [old.assignor], -1)
            self._hold(old, None)
        if new is not None:
            _count(self.assignors, [new.assignor], 1)
            self._hold(new, new.member_id)
        for member, change in ((old, -1), (new, 1)):
            if member is not None and member.classic is not None:
                self.classic_count += change
                _count(
                    self.classic_protocols,
                    [protocol.name for protocol in member.classic.supported_protocols],
                    change,
                )

    def _hold(self, member: ConsumerGroupMember, holder: str | None) -> None:
        """Make ``holder`` the holder of the member's partitions; None: release those that the member holds."""
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, rows in partitions.items():
                held = self.holders.setdefault(topic_id, {})
                if holder is not None:
                    held.update(dict.fromkeys(rows, holder))
                else:
                    for partition in rows:
                        if held.get(partition) == member.member_id:
                            del held[partition]
                if not held:
                    del self.holders[topic_id]

    def put_target(self, member_id: str, assignment: Assignment | None) -> None:
        """Set or remove a target assignment. Its former partitions keep an owner if another target already has them."""
        before: Mapping[Uuid, Collection[int]] = self.targets.get(member_id, {})
        after: Mapping[Uuid, Collection[int]] = assignment or {}
        for topic_id in {**before, **after}:
            owners = self.target_owners.setdefault(topic_id, {})
            wanted = after.get(topic_id, ())
            for partition in before.get(topic_id, ()):
                if partition not in wanted and owners.get(partition) == member_id:
                    del owners[partition]
            owners.update(dict.fromkeys(wanted, member_id))
            if not owners:
                del self.target_owners[topic_id]
        super().put_target(member_id, assignment)


def _count(counts: dict[str, int], names: Iterable[str | None], change: int) -> None:
    for name in names:
        if name is None:
            continue
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            del counts[name]


def _stale(member: ConsumerGroupMember, text: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, text)


def _check_partition(
    member: ConsumerGroupMember, epoch: int, topic: str, topic_id: Uuid, partition: int
) -> None:
    assigned_at = member.assignment_epoch(topic_id, partition)
    if assigned_at is None:
        raise _stale(
            member, f"Partition {topic}-{partition} is not assigned or pending revocation for member."
        )
    if epoch < assigned_at:
        what = "generation id" if member.is_classic else "member epoch"
        text = f"Received {what} {epoch} is older than assignment epoch {assigned_at}"
        raise _stale(member, f"{text} for partition {topic}-{partition}.")
