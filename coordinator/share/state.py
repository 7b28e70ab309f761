"""The state of a share partition: how far each of its records has been delivered.

Source: ``RecordState``, ``PersisterStateBatch``, ``ReadShareGroupStateResponse``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.wire.primitives import Uuid, uuid_to_text

UNINITIALIZED_START_OFFSET = -1
"""The start offset of a share partition that nobody has read yet: the group's reset strategy sets it."""
UNKNOWN_COUNT = -1
"""The delivery complete count while the start offset is not initialized."""
NO_EPOCH = -1
"""The epoch of a caller that knows none: it is not checked."""


class DeliveryState(IntEnum):
    """The state of a record of a share partition. `ACQUIRED` is never stored: a lock does not outlive its broker.
    `ARCHIVING` is archived as soon as the dead-letter queue has the record (KIP-1191).
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def coordinator_key(self) -> str:
        """Return the text by which its share coordinator is found (``SharePartitionKey.asCoordinatorKey``)."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """The records from ``first_offset`` to ``last_offset``, both included, which have one state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """A `DeliveryState`."""
    delivery_count: int
    """How often they were delivered."""


class ShareState(NamedTuple):
    """The state of a share partition, as its leader loads it."""

    state_epoch: int
    start_offset: int
    """-1 if it is not initialized."""
    batches: tuple[StateBatch, ...]
    """In the order of their offsets; they do not overlap. Other records have not been delivered."""


class StateSummary(NamedTuple):
    """The state of a share partition in numbers."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1 if it is not initialized."""
    delivery_complete_count: int
    """The number of offsets, from the start offset on, that are acknowledged or archived; -1 if it is not known."""


UNINITIALIZED_SUMMARY = StateSummary(0, 0, UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT)
"""The summary of a share partition without state."""
