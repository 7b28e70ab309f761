"""Committed readers over a log with gaps of every shape, from any offset of it.

Transactions over a compacted topic, whose records, markers and whole batches go by and by; the log's start is moved
into the middle of transactions; the broker restarts in between. A reader that begins anywhere, with any limit, gets
through to the last stable offset, sees nothing of what was aborted, and of each key the last that was committed. Every
choice comes from the seed that is printed.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest
import trio

from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.common.batches import Batch, batch, read_batches, record
from tests.harness.requests import EARLIEST, bytes_of, create_topic, fetch, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import deterministic
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    rows_of,
)

ROUNDS = 8
STEPS = 12
SEEDS = (0, 1, 5, 6)
"""Together they have every shape."""
KEYS = 6
TOPIC = "t"
CONFIGS = {
    "cleanup.policy": "compact,delete",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "3000",
}
BROKER = {"log.cleaner.backoff.ms": "500", "producer.id.expiration.ms": "60000"}


class Written(NamedTuple):
    key: bytes
    value: bytes
    producer: str


class History:
    """The batches that were written, with partition and outcome."""

    def __init__(self, broker: SimBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.client = broker.connect()
        self.producers: dict[str, TransactionalProducer] = {}
        self.open: dict[int, Written] = {}
        self.committed: dict[int, Written] = {}
        self.count = 0
        self.shapes: set[str] = set()

    async def begin(self) -> None:
        await create_topic(self.client, TOPIC, configs=CONFIGS)
        for name, versions in (("a", V2), ("b", CLASSIC), ("c", V2)):
            producer = TransactionalProducer(Link(self.client), name, versions, timeout_ms=900_000)
            await producer.init()
            self.producers[name] = producer

    def next_rows(self, producer: str) -> list[Written]:
        rows = []
        for _ in range(self.rng.randint(1, 4)):
            self.count += 1
            rows.append(Written(b"k%d" % self.rng.randrange(KEYS), b"%d" % self.count, producer))
        return rows

    async def step(self) -> None:
        name = self.rng.choice([*self.producers, *self.producers, ""])
        rows = self.next_rows(name)
        keys, values = [row.key for row in rows], [row.value for row in rows]
        if not name:
            plain = [record(row.key, row.value, offset_delta=index) for index, row in enumerate(rows)]
            base = (await produce(self.client, TOPIC, batch(plain))).base_offset
            self.committed |= dict(enumerate(rows, base))
        elif self.rng.random() < 0.6:
            base = await self.producers[name].send(TOPIC, 0, values, self.broker.clock.now_ms(), keys)
            self.open |= dict(enumerate(rows, base))
        elif any(row.producer == name for row in self.open.values()):
            await self.end(name)

    async def end(self, name: str) -> None:
        commit = self.rng.random() < 0.5
        await self.producers[name].end(commit=commit)
        for offset in [offset for offset, row in self.open.items() if row.producer == name]:
            row = self.open.pop(offset)
            if commit:
                self.committed[offset] = row

    async def clean(self) -> None:
        """Roll, and let the cleaner do its work."""
        await trio.sleep(1.5)
        self.count += 1
        row = Written(b"other", b"%d" % self.count, "")
        base = (await produce(self.client, TOPIC, batch([record(row.key, row.value)]))).base_offset
        self.committed[base] = row
        await trio.sleep(self.rng.choice((1, 5)))

    async def restart(self) -> None:
        if self.rng.random() < 0.5:
            await self.broker.stop()
        else:
            await self.broker.crash("process")
        await self.broker.start()
        await self.broker.node.logs.recovered()
        self.client = self.broker.connect()
        for producer in self.producers.values():
            producer.link = Link(self.client)

    async def delete_records(self, start: int, end: int) -> None:
        partition = DeleteRecordsPartition(0, self.rng.randint(start, end))
        request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [partition])], 1000)
        await self.client.call(request, 2, DeleteRecordsResponse)

    async def check(self) -> tuple[int, int]:
        """Read from every other offset; log start offset and high watermark."""
        start = (await list_offset(self.client, TOPIC, EARLIEST)).offset
        first = await fetch(self.client, TOPIC, start)
        assert first.error_code == 0
        end = first.high_watermark
        stored = list(read_batches(bytes_of(first.records)))
        self.note_shapes(stored, start)
        stable = min([end, *self.open])
        for offset in range(start + self.rng.randrange(2), end + 1, 2):
            reader = CommittedReader(TOPIC, 0, offset)
            while await reader.poll(self.client, self.rng.choice((1, 150, 1 << 20))):
                pass
            assert reader.position >= stable, f"from {offset}: stuck at {reader.position} of {stable}"
            for at, value in reader.values.items():
                assert self.committed[at].value == value
            last: dict[bytes, int] = {}
            for at, row in sorted(self.committed.items()):
                if offset <= at < stable:
                    last[row.key] = at
            assert set(last.values()) <= set(reader.values), f"from {offset}"
        return start, end

    def note_shapes(self, stored: list[Batch], start: int) -> None:
        """Which gaps there were."""
        position = start
        for one in stored:
            if one.base_offset > position:
                self.shapes.add("between batches" if position > start else "at the start")
            if one.base_offset < start:
                self.shapes.add("a batch that the log's start cuts")
            deltas = [delta for delta, _, _ in rows_of(one)]
            if not deltas:
                self.shapes.add("an empty batch")
            elif deltas[0] > 0:
                self.shapes.add("before a batch's first record")
            if deltas and deltas[-1] < one.last_offset_delta:
                self.shapes.add("behind a batch's last record")
            if any(two - first > 1 for first, two in pairwise(deltas)):
                self.shapes.add("within a batch")
            position = one.base_offset + one.last_offset_delta + 1


SHAPES = {
    "at the start",
    "between batches",
    "a batch that the log's start cuts",
    "an empty batch",
    "before a batch's first record",
    "behind a batch's last record",
    "within a batch",
}


async def history(seed: int) -> set[str]:
    """The shapes that it had."""
    rng = random.Random(seed)
    async with SimBroker(seed, BROKER) as broker:
        one = History(broker, rng)
        await one.begin()
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                await one.step()
            if rng.random() < 0.7:
                # What is open keeps the cleaner from all behind it.
                for name in one.producers:
                    if any(row.producer == name for row in one.open.values()):
                        await one.end(name)
            start, end = await one.check()
            if rng.random() < 0.3:
                await one.restart()
            if rng.random() < 0.2:
                await one.delete_records(start, end)
            else:
                await one.clean()
            await one.check()
        return one.shapes


@pytest.mark.slow
def test_committed_readers_get_over_every_gap() -> None:
    shapes: set[str] = set()

    async def run(seed: int) -> None:
        shapes.update(await history(seed))

    for seed in SEEDS:
        print("seed", seed)
        deterministic(partial(run, seed), seed)
    assert shapes == SHAPES
