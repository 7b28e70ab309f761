"""A share group at work while everything goes wrong: each record is done once, whatever died.

Some members read two partitions side by side. They accept, reject and release records, let locks end, leave, and lose
their connections; the disk has no room for a while; the broker dies at any call that reaches the disk, by process death
or by loss of power. The dead-letter queue has what was rejected, or delivered too often. Every choice
comes from the seed in the test's name: a failure repeats.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from contextlib import suppress
from typing import Literal

import pytest
import trio

from oncelog.broker.config.group_config import DLQ_TOPIC_NAME
from oncelog.broker.metadata.image import GROUP as GROUP_RESOURCE
from oncelog.broker.seams.memory_files import ProcessDied
from oncelog.wire.errors import ErrorCode
from oncelog.wire.stored.metadata import ConfigRecord
from tests.common.batches import batch
from tests.common.records import read_records
from tests.harness.requests import bytes_of, create_topic, fetch, produce
from tests.harness.share_readers import GROUP, ShareReader, serve_share_groups
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import deterministic
from tests.sim.disk import Fault

Kind = Literal["process", "power"]
PARTITIONS = 2
LIVES = 4
STEPS = 60
"""In each life of the broker, at most."""
LOCK_S = 1.0
LIMIT = 4
"""Deliveries of a record."""
LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError, trio.BrokenResourceError)
ACCEPT, RELEASE, REJECT = 1, 2, 3
CONFIG = {
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(LIMIT),
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.prune.interval.ms": "700",
    "share.coordinator.cold.partition.snapshot.interval.ms": "900",
    "num.partitions": "2",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
QUEUE = "dlq.t"
EVERY_MESSAGE = {"log.flush.interval.messages": "1"}

At = tuple[int, int]
"""Partition and offset."""


class Worker:
    """A member of the group, and what it believes to have."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"m{number}"
        self.lives = 0
        self.reader: ShareReader | None = None
        self.held: dict[At, float] = {}
        """What it has acquired, and until when."""

    def connected(self) -> ShareReader:
        if self.reader is None:
            self.lives += 1
            client = self.world.broker.connect()
            self.reader = ShareReader(
                client, self.world.topic_id, f"{self.name}-{self.lives}", partitions=PARTITIONS
            )
        return self.reader

    def lose_connection(self) -> None:
        """What it had comes back to the group."""
        if self.reader is not None:
            self.reader.client.transport.close()
            self.reader = None
        self.held.clear()

    async def fetch(self) -> None:
        world, reader = self.world, self.connected()
        response = await reader.call(reader.request(most=world.rng.randrange(1, 8)))
        if response.error_code:
            assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            self.lose_connection()
            return
        for topic in response.responses:
            for row in topic.partitions:
                for one in row.acquired_records:
                    for offset in range(one.first_offset, one.last_offset + 1):
                        world.acquired(self, (row.partition_index, offset), one.delivery_count)

    async def acknowledge(self) -> None:
        """Say something of neighbouring records that it has."""
        world, reader = self.world, self.connected()
        now = world.now()
        valid = sorted(at for at, until in self.held.items() if until > now)
        if not valid:
            return
        partition, first = world.rng.choice(valid)
        last = first
        while (partition, last + 1) in self.held and world.rng.random() < 0.6:
            last += 1
        offsets = [(partition, offset) for offset in range(first, last + 1)]
        if any(self.held[at] <= now for at in offsets):
            return
        kind = world.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT))
        if world.is_draining:
            kind = ACCEPT
        for at in offsets:
            del self.held[at]
            if kind != RELEASE:
                world.maybe_done.add(at)
            if kind == ACCEPT:
                world.maybe_accepted.add(at)
        code = await reader.acknowledge((first, last, [kind]), partition=partition)
        if code == 0 and kind != RELEASE:
            world.done.update(offsets)
            if kind == REJECT:
                world.rejected.update(offsets)
        elif code:
            # The lock may have ended, or no room been left, while the request was on its way.
            allowed = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert code in allowed, ErrorCode(code)
            if code == ErrorCode.INVALID_RECORD_STATE:
                world.maybe_done.difference_update(offsets)

    async def leave(self) -> None:
        if self.reader is not None:
            reader, self.reader = self.reader, None
            self.held.clear()
            if reader.epoch > 0:
                await reader.leave()
            reader.client.transport.close()


class World:
    """The broker, its members, and the invariants."""

    def __init__(self, broker: SimBroker, topic_id: bytes, rng: random.Random) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.rng = rng
        self.workers = [Worker(self, number) for number in range(3)]
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        """The end of the records whose append was acknowledged."""
        self.done: set[At] = set()
        """What was accepted or rejected, with a response that says so."""
        self.maybe_done: set[At] = set()
        """The same, and what may have been."""
        self.rejected: set[At] = set()
        """What was rejected, with a response that says so."""
        self.maybe_accepted: set[At] = set()
        self.deaths = 0
        self.was_full = False
        self.counts: dict[At, int] = {}
        """The delivery count that was seen last."""
        self.archived: set[At] = set()
        """What was delivered as often as allowed."""
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        self.is_draining = False

    def now(self) -> float:
        return self.broker.clock.monotonic()

    def acquired(self, worker: Worker, at: At, count: int) -> None:
        assert at not in self.done, f"{at} was done"
        for other in self.workers:
            # An answer may be on its way for as long as a step takes.
            assert other.held.get(at, 0.0) <= self.now() + 0.001, f"{at} is {other.name}'s"
        assert 1 <= count <= LIMIT
        assert count > self.counts.get(at, 0), "delivery counts do not fall"
        self.counts[at] = count
        if count == LIMIT:
            self.archived.add(at)
        worker.held[at] = self.now() + LOCK_S

    async def step(self) -> None:
        chance, worker = self.rng.random(), self.rng.choice(self.workers)
        if chance < 0.12:
            partition = self.rng.randrange(PARTITIONS)
            row = await produce(
                self.broker.connect(), "t", batch(self.rng.randrange(1, 6)), partition, acks=-1
            )
            if row.error_code == 0:
                log = self.broker.node.cluster.log("t", partition)
                self.ends[partition] = log.high_watermark
        elif chance < 0.5:
            await worker.fetch()
        elif chance < 0.85:
            await worker.acknowledge()
        elif chance < 0.9:
            await worker.leave()
        elif chance < 0.93:
            worker.lose_connection()
        elif chance < 0.96:
            self.was_full = True
            self.broker.files.faults[:] = [
                Fault("write", errno.ENOSPC, lambda path: "__share_group_state" in path, times=2)
            ]
        else:
            await trio.sleep(self.rng.random() * 1.5)
        self.check()

    def check(self) -> None:
        """What holds at any time."""
        node = self.broker.node
        for partition in range(PARTITIONS):
            found = node.shares.get(GROUP, self.topic_id, partition)
            if found is not None and found.window is not None:
                assert found.window.record_count <= found.window.limits.records_max
                assert found.window.start_offset >= self.starts[partition], "the start offset does not fall"
                self.starts[partition] = found.window.start_offset

    async def die(self, kind: Kind) -> None:
        """The broker dies, and comes back. What members have is no longer theirs; a delivery that was not stored does
        not count.
        """
        self.deaths += 1
        await self.broker.crash(kind)
        self.broker.files.faults.clear()
        for worker in self.workers:
            worker.lose_connection()
        await self.broker.start()
        await self.broker.node.logs.recovered()
        stored = await self.stored_counts()
        for at, count in self.counts.items():
            self.counts[at] = min(count, stored.get(at, 0))
        self.starts = dict.fromkeys(range(PARTITIONS), 0)

    async def stored_counts(self) -> dict[At, int]:
        """The stored delivery counts; all that was done is stored as done."""
        counts: dict[At, int] = {}
        for partition in range(PARTITIONS):
            coordinator = self.broker.node.share_coordinator
            epoch = self.broker.node.cluster.leader_partition("t", partition).leader_epoch
            state = await coordinator.read(GROUP, self.topic_id, partition, epoch)
            states: dict[int, int] = {}
            for first, last, delivery_state, count in state.batches:
                for offset in range(first, last + 1):
                    counts[partition, offset] = count
                    states[offset] = delivery_state
            for of, offset in self.done:
                if of == partition and offset >= state.start_offset:
                    allowed = (3, 4) if (of, offset) in self.rejected else (2,)
                    assert states.get(offset) in allowed, f"{of, offset} was done and is {states.get(offset)}"
        return counts

    async def end(self) -> None:
        """Without faults, everything gets done."""
        self.is_draining = True
        self.broker.files.faults.clear()
        for partition in range(PARTITIONS):
            first = self.ends[partition]
            await produce(self.broker.connect(), "t", batch(9), partition, acks=-1)
            self.ends[partition] = self.broker.node.cluster.log("t", partition).high_watermark
            assert self.ends[partition] >= first + 9
        await self._drain()
        self.check()
        assert len(self.done) >= 9 * PARTITIONS
        await self.check_queue()

    async def check_queue(self) -> None:
        """The queue has what was rejected, and whatever else is done and was not accepted; once, but for deaths."""
        for _ in range(100):
            buried = await self.buried()
            if buried.keys() >= self.dead():
                break
            await trio.sleep(0.1)
        assert buried.keys() >= self.dead()
        if not self.was_full:  # the end of a lock that cannot be stored still goes to the queue, as in Kafka
            assert not buried.keys() & (self.done - self.rejected), "accepted and in the queue"
        assert max(buried.values(), default=0) <= 1 + self.deaths

    def dead(self) -> set[At]:
        """What must be in the queue."""
        done: set[At] = set()
        for partition in range(PARTITIONS):
            found = self.broker.node.shares.get(GROUP, self.topic_id, partition)
            assert found is not None
            assert found.window is not None
            done.update((partition, offset) for offset in range(found.window.start_offset))
        return self.rejected | (done - self.maybe_accepted)

    async def buried(self) -> Counter[At]:
        """The records in the queue, and how often they are there."""
        found: Counter[At] = Counter()
        topic = self.broker.node.metadata.image.topics.get(QUEUE)
        for queue_partition in range(len(topic.partitions) if topic is not None else 0):
            row = await fetch(self.broker.connect(), QUEUE, 0, queue_partition)
            for record in read_records(bytes_of(row.records)):
                headers = dict(record.headers)
                partition, offset = headers[b"__dlq.errors.partition"], headers[b"__dlq.errors.offset"]
                assert partition is not None
                assert offset is not None
                assert int(partition) == queue_partition
                found[int(partition), int(offset)] += 1
        return found

    async def _drain(self) -> None:
        for _ in range(2_000):
            if not self.missing():
                return
            for worker in self.workers:
                await worker.fetch()
                while worker.held:
                    await worker.acknowledge()
                    worker.held = {at: until for at, until in worker.held.items() if until > self.now()}
            await trio.sleep(0.1)
        raise AssertionError(f"never delivered: {self.missing()}")

    def missing(self) -> set[At]:
        """Records that are neither done, nor perhaps, nor archived."""
        written = {(partition, offset) for partition, end in self.ends.items() for offset in range(end)}
        return written - self.done - self.maybe_done - self.archived


async def one_run(seed: int, kind: Kind) -> None:
    config = {**CONFIG, **(EVERY_MESSAGE if kind == "power" else {})}
    rng = random.Random(seed)
    async with SimBroker(seed, config) as broker:
        topic_id = await create_topic(broker.connect(), "t", PARTITIONS, {"retention.ms": "-1"})
        await serve_share_groups(broker, topic_id, PARTITIONS)
        broker.node.metadata.commit([ConfigRecord(GROUP_RESOURCE, GROUP, DLQ_TOPIC_NAME, QUEUE)])
        world = World(broker, topic_id, rng)
        for _ in range(LIVES):
            broker.files.crash_at = broker.files.steps + rng.randrange(1, 150)

            async def live() -> None:
                for _ in range(STEPS):
                    try:
                        await world.step()
                    except (*LOST, ProcessDied):
                        if broker.is_dead:
                            return
                        raise

            async with trio.open_nursery() as nursery:

                async def live_and_end(nursery: trio.Nursery = nursery) -> None:
                    await live()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(live_and_end)
                while not broker.is_dead:
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            broker.files.crash_at = None
            with suppress(*LOST):
                await world.die(kind)
        await world.end()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["process", "power"])
def test_each_record_is_done_once(seed: int, kind: Kind) -> None:
    async def run() -> None:
        await one_run(seed, kind)

    deterministic(run, seed)
