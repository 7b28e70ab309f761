"""`ShareGroup`: the state of a share group.

The durable fields change only in the ``replay`` modules, through the methods under "replay". Source: Kafka's
``ShareGroup``; KIP-932.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from oncelog.coordinator.groups.group import SHARE
from oncelog.coordinator.groups.modern.group import ModernGroup, VolatileState
from oncelog.coordinator.groups.share import records, timers
from oncelog.coordinator.groups.share.member import ShareGroupMember
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.state_partitions import StatePartitions
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid

PROTOCOL_TYPE = "share"


class ShareGroupState(Enum):
    """A group's state; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """No members."""
    STABLE = "Stable"


class VolatileGroupState(VolatileState):
    """``assigned_initialized``: whether the target assignment is known to have all initialized partitions.
    ``initializing_since_ms``: when the state partitions last changed, in wall time; 0 since the group was loaded:
    what began before that did not end, and is tried again at once.
    """

    __slots__ = ("assigned_initialized", "initializing_since_ms")

    def __init__(self) -> None:
        super().__init__()
        self.assigned_initialized = False
        self.initializing_since_ms = 0


class ShareGroup(ModernGroup[ShareGroupMember]):
    """``state_partitions``: None if there is no record of them. ``target_counts``: topic id -> partition -> number of
    members that have it in their target assignment.
    """

    group_type = SHARE
    protocol_type = PROTOCOL_TYPE
    expires = False
    record_types = records.TYPES
    volatile: VolatileGroupState

    __slots__ = ("state_partitions", "target_counts")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, VolatileGroupState())
        self.state_partitions: StatePartitions | None = None
        self.target_counts: dict[Uuid, dict[int, int]] = {}

    # --- queries

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    def has_unassigned(self) -> bool:
        """Whether the target assignment lacks initialized partitions of subscribed topics."""
        if self.volatile.assigned_initialized or self.state_partitions is None:
            return False
        subscribed = self.subscriptions.names()
        for topic_id, topic in self.state_partitions.initialized.items():
            if topic.name in subscribed and self.target_counts.get(topic_id, {}).keys() != topic.partitions:
                return True
        self.volatile.assigned_initialized = True
        return False

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
        raise self._has_no_offsets()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise self._has_no_offsets()

    def check_offset_delete(self) -> None:
        raise self._has_no_offsets()

    def _has_no_offsets(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def offset_expires_at(self, commit_timestamp_ms: int, retention_ms: int) -> int | None:
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, self.members)

    def on_loaded(self, shard: GroupShard) -> None:
        self.volatile.initializing_since_ms = 0
        for member_id in self.members:
            timers.renew_session(shard, self.group_id, member_id)

    def on_removed(self, shard: GroupShard) -> None:
        super().on_removed(shard)
        for member_id in self.members:
            timers.cancel_session(shard, self.group_id, member_id)

    # --- replay

    def on_member_changed(self, old: ShareGroupMember | None, new: ShareGroupMember | None) -> None:
        super().on_member_changed(old, new)
        self.volatile.assigned_initialized = False

    def put_state_partitions(self, partitions: StatePartitions | None, now_ms: int) -> None:
        self.state_partitions = partitions
        self.volatile.assigned_initialized = False
        self.volatile.initializing_since_ms = now_ms

    def put_target(self, member_id: str, assignment: Assignment | None) -> None:
        for partitions, change in ((self.targets.get(member_id), -1), (assignment, 1)):
            for topic_id, numbers in (partitions or {}).items():
                counts = self.target_counts.setdefault(topic_id, {})
                for number in numbers:
                    count = counts.get(number, 0) + change
                    if count:
                        counts[number] = count
                    else:
                        del counts[number]
                if not counts:
                    del self.target_counts[topic_id]
        self.volatile.assigned_initialized = False
        super().put_target(member_id, assignment)
