"""`CoordinatorRecord`, of which a coordinator's durable state is made, and `PartitionWriter`, which appends them to a
log.

A step computes records from the state, appends them as one atomic batch, and then replays them: a step whose append
fails changes nothing. Loading replays the same records from the log, so a restart yields the same state
(docs/contributing/invariants.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oncelog.wire.schema import Message

NO_PRODUCER_ID = -1


class CoordinatorRecord(NamedTuple):
    """A record to store: key, value (None: a tombstone) and the version in which the value is written."""

    key: Message
    value: Message | None
    version: int = 0


class PartitionWriter(Protocol):
    """Appends to the partition of an internal topic that stores a shard (Kafka: ``PartitionWriter``)."""

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Append ``records`` as one atomic batch and return the offset of the first. With a producer id the records
        belong to that producer's open transaction. Raises KafkaError with the log's own code where nothing was written;
        the step translates it for its client with ``to_client_error``.
        """

    def check_batch_size(self, size: int) -> None:
        """Raise KafkaError (MESSAGE_TOO_LARGE) where records of ``size`` bytes do not fit into a batch. `append` raises
        the same, but only after the records have been made.
        """
