"""`ClassicGroup`: a classic group's state (Kafka: ``ClassicGroup``).

``stored``, the newest GroupMetadataValue, is durable and changes only by replay. Everything else is volatile: Kafka
stores a rebalance only when it is complete, so members that join, leave and wait are lost at a restart. While the group
is Stable, the volatile state equals what a restart would restore from ``stored``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic import rebalance, records, responses, timers
from oncelog.coordinator.groups.classic.states import VALID_TRANSITIONS, ClassicGroupState
from oncelog.coordinator.groups.classic.subscriptions import ClassicSubscriptions
from oncelog.coordinator.groups.group import CLASSIC, allow_any_partition
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from oncelog.coordinator.groups.classic.member import ClassicGroupMember, SupportedProtocol
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.coordinator.promise import Promise
    from oncelog.wire.messages.join_group import JoinGroupResponse
    from oncelog.wire.schema import Uuid
    from oncelog.wire.stored.groups import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroup:
    """A classic group. A new one is empty; a "simple" group, which has only offsets, stays empty.

    ``leader_id``: the leader's member id, None without members. ``pending_joins``: members that have got a member id
    and not yet joined with it. ``pending_syncs``: members of the generation that have not yet sent SyncGroup.
    ``supporters``: the number of members that support each protocol, by its name.
    """

    expires = True

    __slots__ = (
        "awaited_joins",
        "generation_id",
        "group_id",
        "group_type",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type_or_none",
        "state",
        "state_timestamp_ms",
        "static_members",
        "stored",
        "subscriptions",
        "supporters",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_type = CLASSIC
        self.stored: GroupMetadataValue | None = None
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.state_timestamp_ms: int | None = None
        self.generation_id = 0
        self.protocol_type_or_none: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.awaited_joins = 0
        self.supporters: dict[str, int] = {}
        self.subscriptions: ClassicSubscriptions | None = None
        self.new_member_added = False

    # The interface `Group`.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.protocol_type_or_none or ""

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def member_ids(self) -> Collection[str]:
        return self.members

    def client_id_of(self, member_id: str) -> str:
        member = self.members.get(member_id)
        return member.client_id if member is not None else ""

    def has_waiting_request(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        return member is not None and (member.join_promise is not None or member.sync_promise is not None)

    def expects(self, member_id: str) -> bool:
        return member_id in self.members or member_id in self.pending_joins

    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    def awaited_members(self, kind: str) -> Collection[str]:
        if kind == timers.SYNC:
            return self.pending_syncs
        if kind == timers.JOIN:
            late = {member_id for member_id, member in self.members.items() if member.join_promise is None}
            return late | self.pending_joins
        return ()

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> Callable[[str, Uuid, int], None]:
        if self.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_or_epoch < 0 and self.state is ClassicGroupState.EMPTY:
            return allow_any_partition
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            if generation_or_epoch != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not ClassicGroupState.EMPTY:
            # Non-members may commit only to an empty group. Old transactional commits do not name their member.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return allow_any_partition

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_alive()

    def check_offset_delete(self) -> None:
        self._check_alive()
        if self.state is not ClassicGroupState.EMPTY and not self.uses_consumer_protocol():
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        self._check_alive()
        if self.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. If that is unknown: True for a group of consumers, else False."""
        topics = self.subscribed_topics()
        return self.uses_consumer_protocol() if topics is None else topic in topics

    def offset_expires_at(self, commit_timestamp_ms: int, retention_ms: int) -> int | None:
        if self.protocol_type_or_none is None:
            return commit_timestamp_ms + retention_ms
        if self.state is ClassicGroupState.EMPTY:
            since = self.state_timestamp_ms
            return (commit_timestamp_ms if since is None else since) + retention_ms
        if (
            self.state is ClassicGroupState.STABLE
            and self.uses_consumer_protocol()
            and self.subscribed_topics() is not None
        ):
            return commit_timestamp_ms + retention_ms
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return (records.tombstone(self.group_id),)

    def on_loaded(self, shard: GroupShard) -> None:
        for member in self.members.values():
            timers.renew_session(shard, self, member)
        if len(self.members) > shard.context.settings().group_max_size:
            rebalance.prepare(shard, self, "it is larger than group.max.size")

    def on_unloaded(self, shard: GroupShard) -> None:
        timers.cancel_all(shard, self)
        self.transition_to(ClassicGroupState.DEAD, shard.context.now_ms())
        self.fail_waiting(ErrorCode.NOT_COORDINATOR)

    def on_removed(self, shard: GroupShard) -> None:
        timers.cancel_all(shard, self)
        self.fail_waiting(ErrorCode.REBALANCE_IN_PROGRESS)

    def on_topics_changed(self, shard: GroupShard, topics: Collection[str]) -> None:
        """Do nothing: the members themselves watch their topics."""

    # Only for classic groups.

    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type_or_none == CONSUMER_PROTOCOL_TYPE

    def is_simple(self) -> bool:
        """Whether the group exists only because of its offsets."""
        return self.protocol_type_or_none is None and self.is_empty() and not self.pending_joins

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def all_joined(self) -> bool:
        return self.awaited_joins == len(self.members) and not self.pending_joins

    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: the longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics to which a member is subscribed; None where that is unknown."""
        return None if self.subscriptions is None else self.subscriptions.topics()

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if the instance id belongs to another member."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is not None and holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all members must support one of them."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        count = len(self.members)
        return self.protocol_type_or_none == protocol_type and any(
            self.supporters.get(name, 0) == count for name in protocols
        )

    def selected_protocol(self) -> str:
        """Of the protocols that all members support, the one that most members prefer. The group must have members."""
        count = len(self.members)
        candidates = {name for name, supporters in self.supporters.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    # The steps that change volatile state.

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert state in VALID_TRANSITIONS[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member. The group must support its protocols, and no member may have its instance id."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type_or_none = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_supporters(member.protocols, 1)
        self.pending_joins.discard(member.member_id)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: list[SupportedProtocol],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Replace the member's protocols and timeouts when it joins again."""
        self._count_supporters(member.protocols, -1)
        member.protocols = protocols
        self._count_supporters(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> None:
        """Remove a member, or a member id that has not joined yet. Another member takes over as leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_supporters(member.protocols, -1)
            assert member.join_promise is None, "a removed member must not wait for a response"
            assert member.sync_promise is None, "a removed member must not wait for a response"
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace(self, old: ClassicGroupMember, new: ClassicGroupMember) -> None:
        """Replace a static member, also as the leader, by another one with the same instance id."""
        assert old.group_instance_id is not None
        assert old.join_promise is None
        del self.members[old.member_id]
        self._count_supporters(old.protocols, -1)
        self.members[new.member_id] = new
        self._count_supporters(new.protocols, 1)
        self.static_members[old.group_instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id

    def assignments(self) -> dict[str, bytes]:
        """The assignments by member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    def await_join(self, member: ClassicGroupMember, promise: Promise[JoinGroupResponse]) -> None:
        """``promise`` is for the member's newest JoinGroup. Its client has given up an earlier one, to which Kafka
        never responds: that connection waits for ever.
        """
        self.complete_join(member, responses.join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_promise = promise
        self.awaited_joins += 1

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> None:
        """Respond to the member's JoinGroup, if one waits."""
        promise = member.join_promise
        if promise is not None:
            member.join_promise = None
            self.awaited_joins -= 1
            promise.resolve(response)

    def fail_waiting(self, code: ErrorCode) -> None:
        """Respond with an error to every JoinGroup and SyncGroup that waits."""
        for member in list(self.members.values()):
            self.complete_join(member, responses.join_error(code, member.member_id))
            responses.complete_sync(member, responses.sync_error(code))

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. Returns False if none has joined."""
        if self.leader_id is not None and self.members[self.leader_id].join_promise is None:
            joined = next((m for m in self.members.values() if m.join_promise is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return self.leader_id is not None

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation with the present members; without members the group becomes empty."""
        self.generation_id += 1
        self.protocol_name = self.selected_protocol() if self.members else None
        self.set_subscriptions()
        self.transition_to(
            ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, now_ms
        )
        self.pending_syncs.clear()

    def set_subscriptions(self) -> None:
        """Set the subscriptions to those in the members' metadata for the group's protocol."""
        self.subscriptions = None
        if self.uses_consumer_protocol() and (self.protocol_name is not None or not self.members):
            self.subscriptions = ClassicSubscriptions(
                member.metadata(self.protocol_name) for member in self.members.values()
            )

    def _count_supporters(self, protocols: Iterable[SupportedProtocol], by: int) -> None:
        for name in {name for name, _ in protocols}:  # a member may name a protocol twice
            count = self.supporters.get(name, 0) + by
            if count:
                self.supporters[name] = count
            else:
                del self.supporters[name]

    def _check_alive(self) -> None:
        if self.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")
