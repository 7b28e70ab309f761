"""`ConsumerGroupMember`: the durable state of one member of a consumer group; immutable.

Source: Kafka's ``ConsumerGroupMember``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.coordinator.groups.assignors.spec import Assignment as Assignment
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.groups import ClassicMemberMetadata

PartitionEpochs = Mapping[Uuid, Mapping[int, int]]
"""Topic id -> partition -> the member epoch at which it was assigned (KIP-1251)."""

NO_PARTITIONS: PartitionEpochs = {}

STATIC_LEAVING_EPOCH = -2


class ConsumerGroupMember(NamedTuple):
    """``topic_regex`` is empty (None in old records) if the member subscribes by names only.

    ``classic``: the metadata of a member of the classic protocol; None for the consumer protocol.
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

    def with_assignment(
        self,
        epoch: int,
        state: MemberState,
        assigned: PartitionEpochs,
        pending_revocation: PartitionEpochs,
    ) -> ConsumerGroupMember:
        """The member with another epoch and current assignment; its present epoch becomes the previous one."""
        return self._replace(
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch at which the member got a partition, also one that it must revoke; None if it has not got it."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def assigned_from_epoch_zero(self) -> PartitionEpochs:
        """Its assignment as of epoch 0: a static member that returns may commit offsets with any epoch."""
        return {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
