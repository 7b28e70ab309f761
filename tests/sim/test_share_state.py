"""The state of share partitions after a death of the process or a loss of power, at every change of the disk.

What was acknowledged is there; of a call that was under way, all or nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
import trio

from oncelog.broker.seams.memory_files import ProcessDied
from oncelog.coordinator.share.batches import combine
from oncelog.coordinator.share.state import UNINITIALIZED_SUMMARY, DeliveryState, StateBatch, StateSummary
from oncelog.wire.errors import KafkaError
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

Kind = Literal["process", "power"]
STATE_TOPIC = "__share_group_state"
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
}
EVERY_MESSAGE = {"log.flush.interval.messages": "1"}
PARTITIONS = 3


def config_for(kind: Kind) -> dict[str, str]:
    return {**CONFIG, **(EVERY_MESSAGE if kind == "power" else {})}


class Expected:
    """What a share partition holds: its summary and its batches; no summary without a state."""

    def __init__(self, summary: StateSummary | None = None, batches: tuple[StateBatch, ...] = ()) -> None:
        self.summary = summary
        self.batches = batches

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expected) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.summary} {self.batches}"

    @property
    def key(self) -> tuple[object, ...]:
        return self.summary, self.batches

    def after_write(self, start: int, count: int, new: list[StateBatch]) -> Expected:
        assert self.summary is not None
        batches = list(self.batches)
        combine(batches, new, start)
        if start == self.summary.start_offset:
            count = max(count, self.summary.delivery_complete_count)
        return Expected(
            self.summary._replace(start_offset=start, delivery_complete_count=count), tuple(batches)
        )


class Run:
    """Calls for some share partitions, and what they may have left."""

    def __init__(self, broker: SimBroker, topic_id: bytes, rng: random.Random) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.rng = rng
        self.acknowledged = dict.fromkeys(range(PARTITIONS), Expected())
        self.under_way: dict[int, Expected] = {}
        self.ended = False

    async def call(
        self, partition: int, after: Expected, call: Callable[[str, bytes, int], Awaitable[object]]
    ) -> None:
        self.under_way[partition] = after
        await call("q", self.topic_id, partition)
        del self.under_way[partition]
        self.acknowledged[partition] = after

    async def initialize(self, partition: int, epoch: int, start: int) -> None:
        count = -1 if start < 0 else 0
        after = Expected(StateSummary(epoch, 0, start, count))
        states = self.broker.node.share_persister
        await self.call(
            partition, after, lambda group, topic, it: states.initialize(group, topic, it, epoch, start)
        )

    async def write(self, partition: int) -> None:
        before = self.acknowledged[partition]
        assert before.summary is not None
        start = max(before.summary.start_offset, 0) + self.rng.randrange(3)
        state = self.rng.choice((DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED))
        new = [StateBatch(start + 1, start + self.rng.randrange(1, 9), state, self.rng.randrange(1, 5))]
        count = self.rng.randrange(100)
        states, epoch = self.broker.node.share_persister, before.summary.state_epoch
        await self.call(
            partition,
            before.after_write(start, count, new),
            lambda group, topic, it: states.write(group, topic, it, epoch, 0, start, count, new),
        )

    async def delete(self, partition: int) -> None:
        await self.call(partition, Expected(), self.broker.node.share_persister.delete)

    async def check(self) -> None:
        """All that was acknowledged is there, of what was under way all or nothing."""
        states = self.broker.node.share_persister
        for partition, acknowledged in self.acknowledged.items():
            summary = await states.summary("q", self.topic_id, partition)
            found = Expected()
            if summary != UNINITIALIZED_SUMMARY or partition in self._stored():
                state = await states.read("q", self.topic_id, partition, 0)
                assert state[:2] == (summary.state_epoch, summary.start_offset)
                found = Expected(summary, state.batches)
            assert found in (acknowledged, self.under_way.get(partition, acknowledged))
            self.acknowledged[partition] = found
        self.under_way.clear()

    def _stored(self) -> set[int]:
        shards = self.broker.node.share_coordinator.runtime.loaded.values()
        return {key.partition for context in shards for key in context.shard.states}

    async def script(self) -> None:
        """Every kind of call, with snapshots of both kinds and pruning between them."""
        for partition in range(PARTITIONS):
            await self.initialize(partition, 1, partition - 1)
        for _ in range(4):
            await self.write(1)
        await self.write(0)
        await trio.sleep(2.5)
        await self.write(2)
        await self.delete(0)
        await self.initialize(1, 2, 50)
        await trio.sleep(2.5)
        await self.write(1)
        self.ended = True


async def crash_at(seed: int, at: int, kind: Kind) -> bool:
    """Run the script and crash at that change of the disk. False: there are fewer changes."""
    async with SimBroker(seed, config_for(kind)) as broker:
        topic_id = await create_topic(broker.connect(), "t", PARTITIONS)
        run = Run(broker, topic_id, random.Random(seed))
        broker.files.crash_at = broker.files.steps + at

        async def script() -> None:
            try:
                await run.script()
            except (ProcessDied, KafkaError):
                assert broker.is_dead

        async with trio.open_nursery() as nursery:
            nursery.start_soon(script)
            while not (broker.is_dead or run.ended):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await broker.crash(kind)
        await broker.start()
        await run.check()
        for partition, expected in list(run.acknowledged.items()):
            if expected.summary is None:
                await run.initialize(partition, 9, 0)
            await run.write(partition)
        await run.check()
    return not run.ended


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_every_change_of_the_disk(kind: Kind) -> None:
    @simulated
    async def run() -> None:
        at = 1
        while await crash_at(at, at, kind):
            at += 1
        assert at > 30

    run()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["process", "power"])
def test_many_lives(seed: int, kind: Kind) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(seed, config_for(kind)) as broker:
            topic_id = await create_topic(broker.connect(), "t", PARTITIONS)
            run = Run(broker, topic_id, random.Random(seed))
            epoch = 0
            for _ in range(8):
                for _ in range(run.rng.randrange(20)):
                    partition = run.rng.randrange(PARTITIONS)
                    chance = run.rng.random()
                    epoch += 1
                    if run.acknowledged[partition].summary is None or chance < 0.1:
                        await run.initialize(partition, epoch, run.rng.randrange(-1, 5))
                    elif chance < 0.15:
                        await run.delete(partition)
                    elif chance < 0.3:
                        await trio.sleep(run.rng.random() * 3)
                    else:
                        await run.write(partition)
                if run.rng.random() < 0.2:
                    await broker.restart()
                else:
                    await broker.crash(kind)
                    await broker.start()
                await run.check()
            starts = [
                broker.node.cluster.log(STATE_TOPIC, partition).log_start_offset for partition in range(2)
            ]
            assert max(starts) > 0, "nothing was pruned"

    run()


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_leaves_no_hole_where_the_log_was_pruned(seed: int) -> None:
    """Without flush.messages what was acknowledged may be lost, but no state that was on the disk before."""

    @simulated
    async def run() -> None:
        async with SimBroker(seed, CONFIG) as broker:
            topic_id = await create_topic(broker.connect(), "t", PARTITIONS)
            run = Run(broker, topic_id, random.Random(seed))
            for partition in range(PARTITIONS):
                await run.initialize(partition, 1, 0)
            await broker.restart()
            for _ in range(20):
                await run.write(run.rng.randrange(PARTITIONS))
            await trio.sleep(1.5)
            await broker.crash("power")
            await broker.start()
            for partition in range(PARTITIONS):
                await broker.node.share_persister.read("q", topic_id, partition, 0)

    run()
