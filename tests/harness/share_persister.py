"""A share persister in memory: `oncelog.broker.share.persister.SharePersister` without a log."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from oncelog.coordinator.share.batches import combine
from oncelog.coordinator.share.state import (
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    UNINITIALIZED_SUMMARY,
    UNKNOWN_COUNT,
    ShareState,
    StateBatch,
    StateSummary,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import Uuid

Key = tuple[str, Uuid, int]


class StoredShareState:
    def __init__(self, state_epoch: int, start_offset: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = 0
        self.start_offset = start_offset
        starts = start_offset != UNINITIALIZED_START_OFFSET
        self.delivery_complete_count = 0 if starts else UNKNOWN_COUNT
        self.batches: list[StateBatch] = []


class MemoryPersister:
    """Keeps ``states``. ``fails_with`` is the error of every call while it is set. ``calls`` counts calls by name."""

    def __init__(self) -> None:
        self.states: dict[Key, StoredShareState] = {}
        self.fails_with: ErrorCode | None = None
        self.gate: trio.Event | None = None
        """If set, a call returns only after this event, although it has taken effect."""
        self.calls: dict[str, int] = {}

    def _begin(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.fails_with is not None:
            raise KafkaError(self.fails_with)

    async def _end(self) -> None:
        if self.gate is not None:
            await self.gate.wait()

    def _stored(self, key: Key) -> StoredShareState:
        if key not in self.states:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self.states[key]

    async def initialize(
        self, group_id: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        self._begin("initialize")
        key = group_id, topic_id, partition
        if key in self.states and -1 != state_epoch < self.states[key].state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self.states[key] = StoredShareState(state_epoch, start_offset)
        await self._end()

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        self._begin("read")
        stored = self._stored((group_id, topic_id, partition))
        if -1 != leader_epoch < stored.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        stored.leader_epoch = max(leader_epoch, stored.leader_epoch)
        state = ShareState(stored.state_epoch, stored.start_offset, tuple(stored.batches))
        await self._end()
        return state

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
        self._begin("write")
        stored = self._stored((group_id, topic_id, partition))
        if -1 != leader_epoch < stored.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if -1 != state_epoch < stored.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if start_offset >= 0:
            stored.start_offset = start_offset
        stored.delivery_complete_count = delivery_complete_count
        combine(stored.batches, batches, stored.start_offset)
        await self._end()

    async def delete(self, group_id: str, topic_id: Uuid, partition: int) -> None:
        self._begin("delete")
        self.states.pop((group_id, topic_id, partition), None)
        await self._end()

    async def summary(
        self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int = NO_EPOCH
    ) -> StateSummary:
        self._begin("summary")
        stored = self.states.get((group_id, topic_id, partition))
        await self._end()
        if stored is None:
            return UNINITIALIZED_SUMMARY
        return StateSummary(
            stored.state_epoch, stored.leader_epoch, stored.start_offset, stored.delivery_complete_count
        )
