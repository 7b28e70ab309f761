"""`ConsumerGroupMember`: one member of a consumer group as the stored records have it; a value, never changed in place.

Source: Kafka's ``ConsumerGroupMember``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.coordinator.groups.consumer.states import MemberState
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.groups import ClassicMemberMetadata

PartitionEpochs = Mapping[Uuid, Mapping[int, int]]
"""Topic id -> partition -> the member epoch that it was assigned at (KIP-1251)."""

Assignment = Mapping[Uuid, frozenset[int]]
"""Topic id -> partitions. A topic without partitions is not in it."""

NO_PARTITIONS: PartitionEpochs = {}

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2


class ConsumerGroupMember(NamedTuple):
    """``topic_regex`` is empty (or None, in old records) where the member subscribes by names only.

    ``classic`` is what a member of the classic protocol joined with; None for one that speaks the consumer protocol.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    assignor: str | None = None
    assigned: PartitionEpochs = NO_PARTITIONS
    pending_revocation: PartitionEpochs = NO_PARTITIONS
    classic: ClassicMemberMetadata | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(
        self,
        epoch: int,
        state: MemberState,
        assigned: PartitionEpochs,
        pending_revocation: PartitionEpochs,
    ) -> ConsumerGroupMember:
        """The member with another current assignment; the epoch that it has becomes the previous one."""
        return self._replace(
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """At which epoch the member got a partition that it has, or is still to give up; None: it has it not."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def assigned_from_epoch_zero(self) -> PartitionEpochs:
        """What it has, as if assigned at epoch 0: a returning static member's offsets count from any epoch."""
        return {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
