"""What a coordinator's state is made of: records, appended to one partition of an internal topic and replayed.

A step computes records from the state, `PartitionWriter.append` writes them as one atomic batch, and only then are they
replayed: a step whose append fails has changed nothing. Loading replays the same records from the log, so a restart and
live running cannot differ (docs/invariants.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.wire.schema import Message


NO_PRODUCER_ID = -1


class CoordinatorRecord(NamedTuple):
    """A stored record: its key, its value (None: a tombstone) and the version the value is written in."""

    key: Message
    value: Message | None
    version: int = 0


class PartitionWriter(Protocol):
    """The log of one shard."""

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Write ``records`` as one batch, all or none; the offset of the first. With a producer id they are part of
        that producer's open transaction. Raises KafkaError where nothing was written, with the code that the log
        gave; what a client is told of it, the step decides (Kafka: ``CoordinatorOperationExceptionHelper``).
        """

    def check_batch_size(self, size: int) -> None:
        """Raise KafkaError (MESSAGE_TOO_LARGE) where no batch holds records of so many bytes. `append` says so too, but
        they have to be made for it.
        """
