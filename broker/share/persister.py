"""The interface `SharePersister`: where the leader of a share partition and its group keep the partition's state.
`PersisterStateManager` (state_manager.py) implements it.

Source: ``Persister``, ``DefaultStatePersister``, the APIs 83 to 87 (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from oncelog.coordinator.share.state import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.share.state import ShareState, StateBatch, StateSummary
    from oncelog.wire.schema import Uuid


class SharePersister(Protocol):
    """Keeps the state of share partitions.

    A change is as durable as the settings promise when its call returns. Calls for a share partition take effect in the
    order in which they began, and before their first wait if the state is loaded. A cancelled call may have taken
    effect.

    Each raises KafkaError as Kafka's API answers: INVALID_REQUEST (an empty group id, a negative partition, or no state
    where some is needed), UNKNOWN_TOPIC_OR_PARTITION, and COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR or UNKNOWN_SERVER_ERROR after retries. Nothing has changed then, but for a failed flush.
    """

    async def initialize(
        self, group_id: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Begin the state anew, without batches. ``start_offset`` is -1 if the first reader is to find it.

        Raises KafkaError, also FENCED_STATE_EPOCH if the stored epoch is higher.
        """

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        """Return the state, and fence leaders of lower epochs from then on.

        Raises KafkaError, also FENCED_LEADER_EPOCH, and INVALID_REQUEST if there is no state.
        """
        ...

    async def write(
        self,
        group_id: str,
        topic_id: Uuid,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Put ``batches`` over the stored ones, and drop batches before ``start_offset`` (-1: it stays).

        Where batches overlap, the higher delivery count holds, and among equal counts the higher delivery state.

        Raises KafkaError, also FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, and INVALID_REQUEST if there is no state.
        """

    async def delete(self, group_id: str, topic_id: Uuid, partition: int) -> None:
        """Delete the state, if there is one. Raises KafkaError."""

    async def summary(
        self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int = NO_EPOCH
    ) -> StateSummary:
        """Return the summary of the state; without state, epochs of 0 and a start offset of -1. Raises KafkaError."""
        ...
