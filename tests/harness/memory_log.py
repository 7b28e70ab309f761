"""The log of a coordinator's shard, in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from oncelog.coordinator.partition_writer import NO_PRODUCER_ID, CoordinatorRecord
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.coordinator import encode_key, encode_value

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemoryLog:
    """Keeps keys and values as bytes, with the producer id.

    ``failure`` is the error of the next append, ``fails_with`` that of every append while it is set, ``fails`` the
    probability, by ``rng``, that an append fails.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self.entries: list[tuple[bytes, bytes | None, int]] = []
        self.failure: ErrorCode | None = None
        self.fails_with: ErrorCode | None = None
        self.fails = 0.0
        self._rng = rng or random.Random(0)

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        failure, self.failure = self.failure or self.fails_with, None
        if failure is None and self._rng.random() < self.fails:
            failure = ErrorCode.NOT_ENOUGH_REPLICAS
        if failure is not None:
            raise KafkaError(failure)
        first = len(self.entries)
        for key, value, version in records:
            stored = None if value is None else encode_value(value, version)
            self.entries.append((encode_key(key), stored, producer_id))
        return first

    def check_batch_size(self, size: int) -> None:
        """Accept any size."""
