"""What every `SharePersister` promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from oncelog.broker.share.persister import SharePersister
from oncelog.coordinator.share.state import (
    UNKNOWN_COUNT,
    DeliveryState,
    ShareState,
    StateBatch,
    StateSummary,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.requests import create_topic
from tests.harness.share_persister import MemoryPersister
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

DONE = DeliveryState.ACKNOWLEDGED


@asynccontextmanager
async def memory() -> AsyncIterator[tuple[SharePersister, bytes]]:
    yield MemoryPersister(), bytes(range(16))


@asynccontextmanager
async def node() -> AsyncIterator[tuple[SharePersister, bytes]]:
    async with SimBroker() as broker:
        yield broker.node.share_persister, await create_topic(broker.connect(), "t")


both = pytest.mark.parametrize("persister", [memory, node])
Opened = Callable[[], AbstractAsyncContextManager[tuple[SharePersister, bytes]]]


@both
@simulated
async def test_keeps_what_is_written(persister: Opened) -> None:
    async with persister() as (states, topic_id):
        where = "q", topic_id, 0
        await states.initialize(*where, 3, 10)
        assert await states.read(*where, 5) == ShareState(3, 10, ())
        await states.write(*where, 3, 5, 12, 4, [StateBatch(12, 15, DONE, 1)])
        assert await states.read(*where, 5) == ShareState(3, 12, (StateBatch(12, 15, DONE, 1),))
        assert await states.summary(*where) == StateSummary(3, 5, 12, 4)
        await states.initialize(*where, 4, -1)
        assert await states.summary(*where) == StateSummary(4, 0, -1, UNKNOWN_COUNT)


@both
@simulated
async def test_deletes(persister: Opened) -> None:
    async with persister() as (states, topic_id):
        where = "q", topic_id, 0
        await states.initialize(*where, 3, 10)
        for _ in range(2):
            await states.delete(*where)
        with pytest.raises(KafkaError) as caught:
            await states.read(*where, 0)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert await states.summary(*where) == StateSummary(0, 0, -1, UNKNOWN_COUNT)


@both
@simulated
async def test_fences_older_epochs(persister: Opened) -> None:
    async with persister() as (states, topic_id):
        where = "q", topic_id, 0
        await states.initialize(*where, 3, 10)
        await states.read(*where, 5)
        for state_epoch, leader_epoch, code in (
            (3, 4, ErrorCode.FENCED_LEADER_EPOCH),
            (2, 5, ErrorCode.FENCED_STATE_EPOCH),
        ):
            with pytest.raises(KafkaError) as caught:
                await states.write(*where, state_epoch, leader_epoch, 10, 0, [])
            assert caught.value.code is code
        with pytest.raises(KafkaError) as caught:
            await states.read(*where, 4)
        assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
        with pytest.raises(KafkaError) as caught:
            await states.initialize(*where, 2, 0)
        assert caught.value.code is ErrorCode.FENCED_STATE_EPOCH
        assert await states.read(*where, 5) == ShareState(3, 10, ())
