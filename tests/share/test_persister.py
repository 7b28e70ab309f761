"""What every `SharePersister` promises."""

from __future__ import annotations

import pytest

from oncelog.broker.share.persister import (
    NO_EPOCH,
    UNKNOWN_COUNT,
    DeliveryState,
    SharePersister,
    ShareState,
    StateBatch,
    StateSummary,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.share_persister import MemoryPersister
from tests.harness.simulation import simulated

TOPIC = bytes(range(16))
WHERE = "q", TOPIC, 0
DONE = DeliveryState.ACKNOWLEDGED


def persister() -> SharePersister:
    return MemoryPersister()


@simulated
async def test_keeps_what_is_written() -> None:
    states = persister()
    await states.initialize(*WHERE, 3, 10)
    assert await states.read(*WHERE, 5) == ShareState(3, 10, ())
    await states.write(*WHERE, 3, 5, 12, 4, [StateBatch(12, 15, DONE, 1)])
    assert await states.read(*WHERE, NO_EPOCH) == ShareState(3, 12, (StateBatch(12, 15, DONE, 1),))
    assert await states.summary(*WHERE) == StateSummary(3, 5, 12, 4)
    await states.initialize(*WHERE, 4, -1)
    assert await states.summary(*WHERE) == StateSummary(4, 0, -1, UNKNOWN_COUNT)


@simulated
async def test_deletes() -> None:
    states = persister()
    await states.initialize(*WHERE, 3, 10)
    for _ in range(2):
        await states.delete(*WHERE)
    with pytest.raises(KafkaError) as caught:
        await states.read(*WHERE, 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert await states.summary(*WHERE) == StateSummary(0, 0, -1, UNKNOWN_COUNT)


@simulated
async def test_fences_older_epochs() -> None:
    states = persister()
    await states.initialize(*WHERE, 3, 10)
    await states.read(*WHERE, 5)
    for state_epoch, leader_epoch, code in (
        (3, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 5, ErrorCode.FENCED_STATE_EPOCH),
    ):
        with pytest.raises(KafkaError) as caught:
            await states.write(*WHERE, state_epoch, leader_epoch, 10, 0, [])
        assert caught.value.code is code
    with pytest.raises(KafkaError) as caught:
        await states.read(*WHERE, 4)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as caught:
        await states.initialize(*WHERE, 2, 0)
    assert caught.value.code is ErrorCode.FENCED_STATE_EPOCH
    assert await states.read(*WHERE, 5) == ShareState(3, 10, ())
