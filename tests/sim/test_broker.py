"""A broker dies at any call that reaches the disk, as a process or by a loss of power. Invariants hold afterwards.

The workload is one idempotent producer per partition, a reader, DeleteRecords and new topics. It is compared with a
model of what was answered. Every choice comes from the seed in the test's name: a failure repeats.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, Literal

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.common.batches import Batch, batch, record
from tests.harness.requests import EARLIEST, create_topic, fetch, list_offset, produce, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import deterministic

PARTITIONS = 2
LIVES = 4
STEPS_MAX = 120
LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError)
Kind = Literal["process", "power"]


class Producer:
    """One idempotent producer of one partition. It repeats a batch until it gets the response, as clients do."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.producer_id = -1
        self.sequence = 0
        self.count = 0
        self.waiting: bytes | None = None
        """The batch that was sent and has no response yet."""

    def next_batch(self, rng: random.Random, now_ms: int) -> bytes:
        if self.waiting is None:
            self.count = rng.randint(1, 3)
            values = [b"%d-%d" % (self.partition, self.sequence + index) for index in range(self.count)]
            records = [record(None, value, offset_delta=index) for index, value in enumerate(values)]
            self.waiting = batch(
                records, producer=(self.producer_id, 0, self.sequence), base_timestamp=now_ms
            )
        return self.waiting


class Model:
    """The acknowledged records, and those that a reader has seen. The broker must have them after every restart."""

    def __init__(self) -> None:
        self.acknowledged = [0] * PARTITIONS
        """Per partition, how many records were acknowledged: sequences 0 up to it, each exactly once."""
        self.log_start = [0] * PARTITIONS
        self.seen: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        """By partition: the payloads of the batches that were read, by base offset."""
        self.leader_epoch = [0] * PARTITIONS
        self.topics: set[str] = set()
        self.topics_tried = 0


class Life:
    """Run one process of the broker under load, until it dies."""

    def __init__(
        self, broker: SimBroker, model: Model, producers: list[Producer], rng: random.Random
    ) -> None:
        self.broker = broker
        self.model = model
        self.producers = producers
        self.rng = rng
        self.client: SimClient = broker.connect()

    async def work(self) -> None:
        while not self.broker.is_dead:
            with suppress(*LOST):
                await self.rng.choice([self.produce] * 6 + [self.read, self.delete, self.add_topic])()

    async def produce(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.producer_id < 0:
            response = await self.client.call(InitProducerIdRequest(None, 0), 4, InitProducerIdResponse)
            assert response.error_code == 0
            assert response.producer_id not in {other.producer_id for other in self.producers}
            producer.producer_id = response.producer_id
        acks = self.rng.choice((1, -1))
        records = producer.next_batch(self.rng, self.broker.clock.now_ms())
        row = await produce(self.client, "t", records, producer.partition, acks=acks)
        if ErrorCode(row.error_code).retriable:
            await trio.sleep(0.01)
            return
        assert row.error_code == 0, row
        producer.sequence += producer.count
        producer.waiting = None
        self.model.acknowledged[producer.partition] = producer.sequence

    async def read(self) -> None:
        for partition in range(PARTITIONS):
            for one in await self.read_partition(partition):
                before = self.model.seen[partition].setdefault(one.base_offset, one.payload)
                assert before == one.payload, f"offset {one.base_offset} of partition {partition} changed"

    async def read_partition(self, partition: int) -> list[Batch]:
        start = await list_offset(self.client, "t", EARLIEST, partition)
        if start.error_code:
            assert ErrorCode(start.error_code).retriable, start
            return []
        return await read_all(self.client, "t", partition, start.offset)

    async def delete(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        row = await fetch(self.client, "t", 0, partition)
        if row.high_watermark <= 0:
            return
        offset = self.rng.randint(0, row.high_watermark)
        rows = [DeleteRecordsTopic("t", [DeleteRecordsPartition(partition, offset)])]
        response = await self.client.call(DeleteRecordsRequest(rows, 1000), 2, DeleteRecordsResponse)
        result = response.topics[0].partitions[0]
        if result.error_code == 0:
            assert result.low_watermark >= offset
            self.model.log_start[partition] = max(self.model.log_start[partition], offset)

    async def add_topic(self) -> None:
        self.model.topics_tried += 1
        name = f"topic-{self.model.topics_tried}"
        await create_topic(self.client, name, 1)
        self.model.topics.add(name)

    async def check(self) -> None:
        """What a new life must still know."""
        await self.broker.node.logs.recovered()
        model = self.model
        metadata = await self.client.call(MetadataRequest(None), 12, MetadataResponse)
        topics = {topic.name: topic for topic in metadata.topics}
        assert model.topics <= set(topics)
        for partition, producer in enumerate(self.producers):
            state = next(row for row in topics["t"].partitions if row.partition_index == partition)
            assert state.leader_epoch >= model.leader_epoch[partition]
            model.leader_epoch[partition] = state.leader_epoch
            found = await self.read_partition(partition)
            await self.check_records(partition, producer, found)

    async def check_records(self, partition: int, producer: Producer, found: list[Batch]) -> None:
        start = (await list_offset(self.client, "t", EARLIEST, partition)).offset
        assert start >= self.model.log_start[partition]
        sequences = [one.base_sequence + index for one in found for index in range(one.record_count)]
        assert sequences == sorted(set(sequences)), "twice, or out of order"
        if sequences:
            assert sequences == list(range(sequences[0], sequences[-1] + 1)), "a gap"
            assert sequences[0] <= start, "more is gone than was deleted"
        end = sequences[-1] + 1 if sequences else start
        assert end >= self.model.acknowledged[partition], "something acknowledged is lost"
        assert end <= producer.sequence + (producer.count if producer.waiting else 0), "something nobody sent"
        seen = {offset: payload for offset, payload in self.model.seen[partition].items() if offset >= start}
        present = {one.base_offset: one.payload for one in found}
        for offset, payload in seen.items():
            assert present.get(offset) == payload, f"what was read at offset {offset} is not there any more"


async def lives(seed: int, kind: Kind, config: dict[str, str]) -> None:
    rng = random.Random(seed)
    model = Model()
    producers = [Producer(partition) for partition in range(PARTITIONS)]
    async with SimBroker(seed, config) as broker:
        await create_topic(broker.connect(), "t", PARTITIONS, {"segment.bytes": "1048576"})
        for _ in range(LIVES):
            files: Any = broker.files
            files.crash_at = files.steps + rng.randrange(STEPS_MAX)
            with trio.fail_after(10_000):
                await Life(broker, model, producers, rng).work()
            await broker.crash(kind)
            await broker.start()
            with trio.fail_after(10_000):
                await Life(broker, model, producers, rng).check()


def run(seed: int, kind: Kind, config: dict[str, str]) -> None:
    deterministic(lambda: lives(seed, kind, config), seed)


@pytest.mark.parametrize("seed", range(12))
def test_process_death_loses_nothing_acknowledged(seed: int) -> None:
    run(seed, "process", {})


@pytest.mark.parametrize("seed", range(12))
def test_power_loss_loses_nothing_acknowledged_with_flush_messages_1(seed: int) -> None:
    run(seed, "power", {"log.flush.interval.messages": "1"})


@pytest.mark.parametrize("seed", range(12))
def test_power_loss_at_defaults_leaves_a_broker_that_starts(seed: int) -> None:
    """Records may be gone, as in Kafka; a log that ends lower than before has a higher leader epoch."""

    async def main() -> None:
        rng = random.Random(seed)
        async with SimBroker(seed) as broker:
            client = broker.connect()
            await create_topic(client, "t", 1)
            for life in range(LIVES):
                client = broker.connect()
                before = await end_and_epoch(client)
                if before is None:
                    await create_topic(client, "t", 1)
                for _ in range(rng.randint(1, 10)):
                    await produce(client, "t")
                reached = await end_and_epoch(client)
                await broker.crash("power")
                await broker.start()
                await broker.node.logs.recovered()
                client = broker.connect()
                after = await end_and_epoch(client)
                if reached is not None and after is not None and after[2] == reached[2]:
                    assert after[1] > reached[1] or after[0] >= reached[0], f"life {life}: {reached} {after}"
                    await read_all(client, "t")

    deterministic(main, seed)


async def end_and_epoch(client: SimClient) -> tuple[int, int, bytes] | None:
    """The end offset of partition 0 of ``t``, its leader epoch and the topic's id; None if the topic does not exist."""
    metadata = await client.call(MetadataRequest(None), 12, MetadataResponse)
    for topic in metadata.topics:
        if topic.name == "t":
            end = await list_offset(client, "t", -1)
            assert end.error_code == 0
            return end.offset, topic.partitions[0].leader_epoch, bytes(topic.topic_id)
    return None


@pytest.mark.parametrize("seed", range(5))
def test_metadata_reaches_the_disk_within_the_checkpoint_interval(seed: int) -> None:
    async def main() -> None:
        async with SimBroker(seed) as broker:
            await create_topic(broker.connect(), "t", 1)
            await trio.sleep(61)
            await broker.crash("power")
            await broker.start()
            assert await end_and_epoch(broker.connect()) is not None

    deterministic(main, seed)


def test_the_same_seed_gives_the_same_run() -> None:
    """Fails when a new Trio moves the private switches that determinism needs."""
    traces = []
    for _ in range(2):
        trace: list[str] = []

        async def main(trace: list[str] = trace) -> None:
            async def task(name: str) -> None:
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
                    trace.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abcdefgh":
                    nursery.start_soon(task, name)

        deterministic(main, 5)
        traces.append(trace)
    assert traces[0] == traces[1]


def test_a_bug_in_the_background_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(log: object, now_ms: int) -> int:
        raise ValueError("a bug of ours")

    async def main() -> None:
        async with SimBroker(config={"log.retention.check.interval.ms": "1000"}) as broker:
            await create_topic(broker.connect(), "t")
            await produce(broker.connect(), "t")
            await trio.sleep(60)

    monkeypatch.setattr("oncelog.broker.log.background.delete_old_segments", broken)
    with pytest.raises(BaseExceptionGroup) as caught:
        deterministic(main, 1)
    assert caught.group_contains(AssertionError, match="internal error")
