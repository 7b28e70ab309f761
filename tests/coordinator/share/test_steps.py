"""The steps of the share coordinator: errors, and which records they write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.coordinator.share import steps
from oncelog.coordinator.share.state import (
    UNINITIALIZED_SUMMARY,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateSummary,
)
from oncelog.coordinator.share.upkeep import delete_states_without_topic, snapshot_cold_partitions
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.share_shard import ShareShardHarness

TOPIC = bytes(range(16))
KEY = SharePartitionKey("q", TOPIC, 1)
DONE = DeliveryState.ACKNOWLEDGED


@pytest.fixture
def harness() -> ShareShardHarness:
    made = ShareShardHarness()
    made.topics[TOPIC] = 2
    return made


def error_of(step: Callable[[], Any]) -> tuple[str, str | None]:
    with pytest.raises(KafkaError) as caught:
        step()
    return caught.value.code.name, caught.value.message


def write(harness: ShareShardHarness, first: int, last: int, start: int = -1, *, done: int = 0) -> None:
    batches = [StateBatch(first, last, DONE, 1)] if first <= last else []
    steps.write(harness.shard, KEY, 0, 0, start, done, batches)


def test_coordinator_key() -> None:
    assert KEY.coordinator_key() == "q:AAECAwQFBgcICQoLDA0ODw:1"


def test_every_step_refuses_what_does_not_exist(harness: ShareShardHarness) -> None:
    shard = harness.shard
    all_steps: list[Callable[[SharePartitionKey], object]] = [
        lambda key: steps.initialize(shard, key, 0, 0),
        lambda key: steps.read(shard, key, 0),
        lambda key: steps.write(shard, key, 0, 0, 0, 0, []),
        lambda key: steps.delete(shard, key),
        lambda key: steps.summary(shard, key),
    ]
    needs_state = all_steps[1:3]
    for step in all_steps:
        negative = SharePartitionKey("q", TOPIC, -1)
        code = ("INVALID_REQUEST", "The partition id cannot be a negative number.")
        assert error_of(lambda step=step, key=negative: step(key)) == code  # type: ignore[misc]
        if step not in needs_state:
            for missing in (SharePartitionKey("q", TOPIC, 2), SharePartitionKey("q", bytes(16), 0)):
                found = error_of(lambda step=step, key=missing: step(key))  # type: ignore[misc]
                assert found[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    for name, step in zip(("Read", "Write"), needs_state, strict=True):
        text = f"{name} operation on uninitialized share partition not allowed."
        assert error_of(lambda step=step: step(KEY)) == ("INVALID_REQUEST", text)  # type: ignore[misc]
    assert steps.summary(shard, KEY) == UNINITIALIZED_SUMMARY
    steps.delete(shard, KEY)
    assert harness.records() == []


def test_deleted_topic(harness: ShareShardHarness) -> None:
    steps.initialize(harness.shard, KEY, 0, 0)
    del harness.topics[TOPIC]
    for step in (
        lambda: steps.read(harness.shard, KEY, 0),
        lambda: steps.write(harness.shard, KEY, 0, 0, 0, 0, []),
    ):
        assert error_of(step)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert list(delete_states_without_topic(harness.shard)) == [None]
    assert not harness.shard.states
    assert harness.records()[-1] == ("ShareSnapshotKey", None)
    assert list(delete_states_without_topic(harness.shard)) == []


def test_epochs(harness: ShareShardHarness) -> None:
    shard = harness.shard
    steps.initialize(shard, KEY, 4, 0)
    assert error_of(lambda: steps.initialize(shard, KEY, 3, 0))[0] == "FENCED_STATE_EPOCH"
    steps.read(shard, KEY, 7)
    assert error_of(lambda: steps.read(shard, KEY, 6))[0] == "FENCED_LEADER_EPOCH"
    assert error_of(lambda: steps.write(shard, KEY, 4, 6, 0, 0, []))[0] == "FENCED_LEADER_EPOCH"
    assert error_of(lambda: steps.write(shard, KEY, 3, 7, 0, 0, []))[0] == "FENCED_STATE_EPOCH"
    for refused in (
        lambda: steps.write(shard, KEY, 4, -1, 0, 0, []),
        lambda: steps.write(shard, KEY, -1, 7, 0, 0, []),
        lambda: steps.read(shard, KEY, -1),
        lambda: steps.initialize(shard, KEY, -1, 0),
    ):
        assert error_of(refused)[0] == "INVALID_REQUEST"
    steps.write(shard, KEY, 5, 8, 0, 0, [])
    assert steps.summary(shard, KEY) == StateSummary(4, 7, 0, 0)


def test_reading_stores_a_new_leaders_epoch_only(harness: ShareShardHarness) -> None:
    shard = harness.shard
    steps.initialize(shard, KEY, 1, -1)
    assert steps.read(shard, KEY, 0) == ShareState(1, -1, ())
    assert len(harness.records()) == 1
    for _ in range(2):
        steps.read(shard, KEY, 3)
    assert [name for name, _ in harness.records()] == ["ShareSnapshotKey", "ShareUpdateKey"]
    assert harness.records()[1][1].leader_epoch == 3
    assert harness.records()[1][1].delivery_complete_count == -1


@pytest.mark.parametrize(("start", "count"), [(-1, -1), (0, 0), (9, 0)])
def test_counts_from_a_known_start_offset(harness: ShareShardHarness, start: int, count: int) -> None:
    steps.initialize(harness.shard, KEY, 0, start)
    assert steps.summary(harness.shard, KEY) == StateSummary(0, 0, start, count)


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_a_snapshot_after_so_many_updates(harness: ShareShardHarness, updates: int) -> None:
    harness.settings.share_coordinator_snapshot_update_records_per_snapshot = updates
    steps.initialize(harness.shard, KEY, 0, 0)
    for number in range(2 * (updates + 1)):
        write(harness, number, number, 0, done=number + 1)
    names = [name for name, _ in harness.records()]
    assert names == ["ShareSnapshotKey", *2 * (["ShareUpdateKey"] * updates + ["ShareSnapshotKey"])]
    last = harness.records()[-1][1]
    assert (last.snapshot_epoch, last.start_offset, last.delivery_complete_count) == (2, 0, 2 * (updates + 1))
    (batch,) = last.state_batches
    assert (batch.first_offset, batch.last_offset) == (0, 2 * (updates + 1) - 1)


def test_an_update_has_only_what_changed(harness: ShareShardHarness) -> None:
    steps.initialize(harness.shard, KEY, 0, 0)
    write(harness, 0, 4)
    write(harness, 8, 9, 5)
    assert [batch.first_offset for batch in harness.records()[-1][1].state_batches] == [8]
    assert steps.read(harness.shard, KEY, 0).batches == (StateBatch(8, 9, DONE, 1),)


def test_a_failed_append_changes_nothing(harness: ShareShardHarness) -> None:
    steps.initialize(harness.shard, KEY, 0, 0)
    harness.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(lambda: write(harness, 0, 4))[0] == "NOT_COORDINATOR"
    assert steps.read(harness.shard, KEY, 0) == ShareState(0, 0, ())


def test_cold_snapshots(harness: ShareShardHarness) -> None:
    other = SharePartitionKey("q", TOPIC, 0)
    steps.initialize(harness.shard, KEY, 0, 0)
    harness.now_ms += 200_000
    steps.initialize(harness.shard, other, 0, 5)
    harness.now_ms += 100_000
    list(snapshot_cold_partitions(harness.shard))
    assert len(harness.records()) == 3
    value = harness.records()[-1][1]
    assert value.snapshot_epoch == 1
    assert value.write_timestamp - value.create_timestamp == 300_000
    assert harness.shard.redundant_offset() == 1
    harness.now_ms += 1_000_000
    list(snapshot_cold_partitions(harness.shard))
    assert len(harness.records()) == 5
    harness.now_ms += 1_000_000
    list(snapshot_cold_partitions(harness.shard))
    assert len(harness.records()) == 5, "the shard is quiet"


def test_redundant_offset(harness: ShareShardHarness) -> None:
    shard, other = harness.shard, SharePartitionKey("q", TOPIC, 0)
    assert shard.redundant_offset() == 0
    steps.initialize(shard, KEY, 0, 0)
    steps.initialize(shard, other, 0, 0)
    assert shard.redundant_offset() == 0
    steps.initialize(shard, KEY, 0, 0)
    assert shard.redundant_offset() == 1
    write(harness, 0, 0)
    steps.delete(shard, other)
    assert shard.redundant_offset() == 2
    steps.delete(shard, KEY)
    assert shard.redundant_offset() == 5
