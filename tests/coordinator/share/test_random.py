"""Random steps against a simple model: every offset has its state on its own. Replay equals running."""

from __future__ import annotations

import random

import pytest

from oncelog.coordinator.share import steps
from oncelog.coordinator.share.state import (
    DeliveryState,
    SharePartitionKey,
    StateBatch,
    StateSummary,
)
from oncelog.coordinator.share.upkeep import delete_states_without_topic, snapshot_cold_partitions
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.share_shard import ShareShardHarness, contents

STEPS = 400
OFFSETS = 40
TOPICS = [bytes([number]) * 16 for number in (1, 2)]
KEYS = [SharePartitionKey(group, topic, 0) for group in ("a", "b") for topic in TOPICS]
NOT_OF_ALL_SNAPSHOTS = ("updates", "leader_epoch_max", "state_epoch_max")
"""Fields that a coordinator forgets with the records before the last snapshot, as in Kafka."""


class ModelState:
    def __init__(self, state_epoch: int, start: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = 0
        self.start = start
        self.count = -1 if start == -1 else 0
        self.offsets: dict[int, tuple[int, int]] = {}
        """The delivery count and state of each offset."""


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.harness = ShareShardHarness()
        self.harness.settings.share_coordinator_snapshot_update_records_per_snapshot = self.rng.choice(
            (0, 1, 3, 20)
        )
        self.harness.topics = dict.fromkeys(TOPICS, 1)
        self.model: dict[SharePartitionKey, ModelState] = {}
        self.leader_epoch = 0
        self.state_epoch = 0
        self.is_pruned = False

    def step(self) -> None:
        rng, harness = self.rng, self.harness
        key = rng.choice(KEYS)
        chance = rng.random()
        if chance < 0.6:
            self.write(key)
        elif chance < 0.7:
            self.initialize(key)
        elif chance < 0.75:
            self.read(key)
        elif chance < 0.79:
            steps.delete(harness.shard, key)
            self.model.pop(key, None)
        elif chance < 0.84:
            harness.now_ms += rng.randrange(600_000)
            list(snapshot_cold_partitions(harness.shard))
        elif chance < 0.89:
            harness.prune()
            self.is_pruned = True
        elif chance < 0.91:
            self.replace_topic()
        elif chance < 0.95:
            harness.crash()
        else:
            self.fail(key)
        self.check()

    def initialize(self, key: SharePartitionKey) -> None:
        self.state_epoch += self.rng.randrange(2)
        start = self.rng.choice((-1, self.rng.randrange(OFFSETS)))
        steps.initialize(self.harness.shard, key, self.state_epoch, start)
        self.model[key] = ModelState(self.state_epoch, start)

    def read(self, key: SharePartitionKey) -> None:
        state = self.model.get(key)
        if state is None:
            return
        if state.leader_epoch > 0:
            with pytest.raises(KafkaError, match="FENCED_LEADER_EPOCH"):
                steps.read(self.harness.shard, key, state.leader_epoch - 1)
        self.leader_epoch += 1
        steps.read(self.harness.shard, key, self.leader_epoch)
        state.leader_epoch = self.leader_epoch

    def write(self, key: SharePartitionKey) -> None:
        rng, state = self.rng, self.model.get(key)
        if state is None:
            with pytest.raises(KafkaError, match="INVALID_REQUEST"):
                steps.write(self.harness.shard, key, 0, 0, 0, 0, [])
            return
        batches = []
        for _ in range(rng.randrange(4)):
            first = rng.randrange(OFFSETS)
            delivery = rng.choice(
                (
                    DeliveryState.AVAILABLE,
                    DeliveryState.ACKNOWLEDGED,
                    DeliveryState.ARCHIVING,
                    DeliveryState.ARCHIVED,
                )
            )
            batches.append(StateBatch(first, first + rng.randrange(8), delivery, rng.randrange(1, 4)))
        start = rng.choice((-1, min(max(state.start, 0) + rng.randrange(3), OFFSETS)))
        count = rng.randrange(OFFSETS)
        steps.write(self.harness.shard, key, state.state_epoch, self.leader_epoch, start, count, batches)
        if start == state.start:
            state.count = max(state.count, count)
        elif start > state.start:
            state.start, state.count = start, count
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                before = state.offsets.get(offset, (0, 0))
                state.offsets[offset] = max(before, (batch.delivery_count, batch.delivery_state))
        state.offsets = {offset: it for offset, it in state.offsets.items() if offset >= state.start}

    def replace_topic(self) -> None:
        """Delete a topic and create another one."""
        topic = self.rng.choice(TOPICS)
        del self.harness.topics[topic]
        list(delete_states_without_topic(self.harness.shard))
        self.model = {key: state for key, state in self.model.items() if key.topic_id != topic}
        self.harness.topics[topic] = 1

    def fail(self, key: SharePartitionKey) -> None:
        """A step whose record cannot be written changes nothing."""
        self.harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            steps.initialize(self.harness.shard, key, self.state_epoch + 1, 0)

    def check(self) -> None:
        shard = self.harness.shard
        assert shard.states.keys() == self.model.keys()
        for key, expected in self.model.items():
            summary = steps.summary(shard, key)
            assert summary == StateSummary(
                expected.state_epoch, expected.leader_epoch, expected.start, expected.count
            )
            found = shard.states[key]
            assert (found.state_epoch, found.start_offset) == (expected.state_epoch, expected.start)
            offsets = {
                offset: (batch.delivery_count, batch.delivery_state)
                for batch in found.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            assert offsets == expected.offsets
        without = NOT_OF_ALL_SNAPSHOTS if self.is_pruned else ()
        loaded = self.harness.loaded()
        assert {key: contents(state, without=without) for key, state in loaded.states.items()} == {
            key: contents(state, without=without) for key, state in shard.states.items()
        }
        assert loaded.redundant_offset() == shard.redundant_offset()


@pytest.mark.parametrize("seed", range(40))
def test_random_steps(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()


def test_pruning_bounds_the_log() -> None:
    """While share partitions are in use, the log has no more than some snapshots of each."""
    world = World(1)
    world.harness.settings.share_coordinator_snapshot_update_records_per_snapshot = 10
    for key in KEYS:
        world.initialize(key)
    for _ in range(2_000):
        world.write(world.rng.choice(KEYS))
        world.harness.prune()
    assert len(world.harness.records()) < 150
