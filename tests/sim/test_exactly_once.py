"""Consume, transform, produce, with everything going wrong: each input's effect is there once, whatever died.

Several transformers each read one partition of ``in``, write what they read to ``out``, and commit their position in
the same transaction. Requests and answers are lost; transformers die and others take over, while the old ones go on as
zombies; transactions time out; disks are full for a while; the broker dies at any call that reaches the disk, by
process death or by loss of power.
Every choice comes from the seed in the test's name: a failure repeats.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import pytest
import trio

from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from oncelog.wire.schema import Message
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import deterministic
from tests.harness.transactional_producer import (
    ABORTABLE,
    CLASSIC,
    GROUP,
    OLDEST,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
    committed_offset,
)
from tests.sim.disk import Fault

INPUTS = 2
OUTPUTS = 2
RECORDS = 24
"""In each partition of ``in``."""
LIVES = 4
STEPS_MAX = 300
TIMEOUT_MS = 2_000
GROUP_ID = "transformers"
LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError, trio.BrokenResourceError)
Kind = Literal["process", "power"]
Fate = Literal["open", "committing", "committed", "aborted"]


class DiedError(Exception):
    """The transformer's process died. Another one takes over."""


class LossyLink(Link):
    """Loses requests and responses, sends them again on a new connection, and knows when its owner dies."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connected: SimClient | None = None

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        world = self.world
        while True:
            chance = world.rng.random() if world.faults else 1.0
            try:
                if chance < 0.02:
                    raise DiedError
                if chance < 0.05:
                    raise ConnectionEndedError  # the request is lost
                client = self.connected = self.connected or world.broker.connect()
                await client.send(request, version)
                if chance < 0.08:
                    if world.rng.random() < 0.5:
                        await trio.sleep(world.rng.random() * 0.01)
                    raise ConnectionEndedError  # the response is lost
                with trio.fail_after(60):
                    return await client.receive(response, version)
            except LOST:
                if self.connected is not None:
                    self.connected.transport.close()
                    self.connected = None
                if world.broker.is_dead:
                    await world.next_life.wait()
                await trio.sleep(0.005)


class Attempt:
    """One transaction of a transformer, and its outcome as far as a response has reported it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: set[bytes] = set()
        self.fate: Fate = "open"


class World:
    """The broker, the transactions that ran on it, and the invariants."""

    def __init__(self, broker: SimBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.faults = True
        self.is_up = True
        self.next_life = trio.Event()
        self.attempts: dict[str, Attempt] = {}
        self.seen: list[dict[int, bytes]] = [{} for _ in range(OUTPUTS)]
        """The records that read_committed readers have seen, by partition of ``out`` and offset."""
        self.zombie_requests: list[tuple[ProduceRequest, int]] = []

    def begin(self, name: str) -> Attempt:
        attempt = Attempt(f"{name}/{len(self.attempts)}")
        self.attempts[attempt.name] = attempt
        return attempt


class Transformer:
    """All incarnations of one transactional id, one after the other."""

    def __init__(self, world: World, partition: int) -> None:
        self.world = world
        self.partition = partition
        self.name = f"transformer-{partition}"
        self.done = False

    async def live(self) -> None:
        while not self.done:
            with suppress(DiedError, TransactionEndedError):
                await self.incarnation()

    async def incarnation(self) -> None:
        world, rng = self.world, self.world.rng
        link = LossyLink(world)
        versions = rng.choice((OLDEST, CLASSIC, ABORTABLE, V2, V2))
        producer = TransactionalProducer(link, self.name, versions, timeout_ms=TIMEOUT_MS)
        await producer.init()
        await producer.find(GROUP_ID, GROUP)
        position = max(0, await committed_offset(link, GROUP_ID, "in", self.partition))
        while position < RECORDS:
            count = min(rng.randint(1, 4), RECORDS - position)
            if await self.transaction(producer, position, count):
                position += count
        self.done = True

    async def transaction(self, producer: TransactionalProducer, position: int, count: int) -> bool:
        """Whether it committed."""
        world, rng = self.world, self.world.rng
        attempt = world.begin(self.name)
        offsets_first = rng.random() < 0.3
        if offsets_first:
            await self.commit_position(producer, position + count)
        for index in range(position, position + count):
            value = f"{attempt.name}:{self.partition}-{index}".encode()
            attempt.values.add(value)
            partition = rng.randrange(OUTPUTS)
            now_ms = world.broker.clock.now_ms()
            if rng.random() < 0.1:
                request = producer.produce_request("out", partition, [value], now_ms)
                world.zombie_requests.append((request, producer.versions.produce))
            await producer.send("out", partition, [value], now_ms)
            if world.faults and rng.random() < 0.03:
                await trio.sleep(rng.random() * 2 * TIMEOUT_MS / 1000)
        if not offsets_first:
            await self.commit_position(producer, position + count)
        commit = not world.faults or rng.random() < 0.75
        if commit:
            attempt.fate = "committing"
        await producer.end(commit=commit)
        attempt.fate = "committed" if commit else "aborted"
        return commit

    async def commit_position(self, producer: TransactionalProducer, offset: int) -> None:
        await producer.send_offset(GROUP_ID, "in", self.partition, offset)


async def zombies(world: World) -> None:
    """Requests of transactions that ended long ago arrive once more."""
    while world.faults:
        await trio.sleep(0.2)
        if world.zombie_requests and not world.broker.is_dead:
            at = world.rng.randrange(len(world.zombie_requests))
            request, version = world.zombie_requests[at]
            with suppress(*LOST):
                client = world.broker.connect()
                await client.call(request, version, ProduceResponse)
                client.transport.close()


async def full_disks(world: World) -> None:
    """Now and then a topic cannot be written for a while.

    Not while the broker starts: a log that cannot be recovered goes offline, as in Kafka.
    """
    while world.faults:
        await trio.sleep(world.rng.uniform(0.1, 1))
        if not world.is_up:
            continue
        topic = world.rng.choice(("/__transaction_state-", "/out-", "/__consumer_offsets-"))
        faults: Any = world.broker.files.faults
        faults.append(Fault("write", errno.ENOSPC, partial(_is_in, topic)))
        await trio.sleep(world.rng.uniform(0.05, 0.3))
        faults.clear()


async def read_committed(world: World, client: SimClient) -> list[CommittedReader]:
    """Return the committed records by partition of ``out``, after a comparison with all earlier reads."""
    readers = [CommittedReader("out", partition) for partition in range(OUTPUTS)]
    for reader in readers:
        while await reader.poll(client, world.rng.choice((100, 1000, 1 << 20))):
            pass
        assert reader.last_stable_offset <= reader.high_watermark
        seen = world.seen[reader.partition]
        for offset, value in reader.values.items():
            assert seen.setdefault(offset, value) == value, f"offset {offset} changed"
        for offset, value in seen.items():
            assert reader.values.get(offset) == value, f"{value!r} was committed and is not any more"
    check(world, readers)
    return readers


def check(world: World, readers: list[CommittedReader]) -> None:
    found = [value for reader in readers for value in reader.values.values()]
    assert len(found) == len(set(found)), "twice"
    effects = [value.rpartition(b":")[2] for value in found]
    assert len(effects) == len(set(effects)), "an input's effect is there twice"
    # An open transaction delays reads of later committed records.
    all_stable = all(reader.position == reader.high_watermark for reader in readers)
    for attempt in world.attempts.values():
        there = attempt.values & set(found)
        if attempt.fate == "committed":
            if all_stable:
                assert there == attempt.values, f"{attempt.name} was committed, and {there} is all there is"
        elif attempt.fate != "committing":
            assert not there, f"{attempt.name} was never committed, and {there} is there"


async def lives(seed: int, kind: Kind, config: dict[str, str]) -> None:
    rng = random.Random(seed)
    async with SimBroker(seed, config) as broker:
        client = broker.connect()
        await create_topic(client, "in", INPUTS)
        await create_topic(client, "out", OUTPUTS, {"segment.bytes": "1048576"})
        for partition in range(INPUTS):
            rows = [record(None, b"%d" % index, offset_delta=index) for index in range(RECORDS)]
            row = await produce(client, "in", batch(rows), partition, acks=-1)
            assert row.error_code == 0
        world = World(broker, rng)
        transformers = [Transformer(world, partition) for partition in range(INPUTS)]
        async with trio.open_nursery() as nursery:
            for transformer in transformers:
                nursery.start_soon(transformer.live)
            nursery.start_soon(zombies, world)
            if seed % 3 == 0:
                nursery.start_soon(full_disks, world)
            for _ in range(LIVES):
                await one_life(world, transformers, kind)
            world.faults = False
            with trio.fail_after(1_000):
                while not all(transformer.done for transformer in transformers):
                    await trio.sleep(0.1)
        with trio.fail_after(1_000):
            await finish(world)


async def change_version(world: World) -> None:
    """Now and then ``transaction.version`` goes down or up."""
    if world.rng.random() < 0.5:
        level = world.rng.choice((1, 2))
        update = FeatureUpdateKey("transaction.version", level, upgrade_type=1)
        if world.broker.node.transactions.transaction_version() > level:
            update.upgrade_type = 2
        request = UpdateFeaturesRequest(1000, [update])
        with suppress(*LOST):
            await world.broker.connect().call(request, 1, UpdateFeaturesResponse)


async def one_life(world: World, transformers: list[Transformer], kind: Kind) -> None:
    broker = world.broker
    files: Any = broker.files
    # The slower the disk, the more happens between an append and its flush.
    files.latency_s = world.rng.choice((0.0, 0.001, 0.02))
    files.crash_at = files.steps + world.rng.randrange(STEPS_MAX)
    with trio.fail_after(10_000):
        while not broker.is_dead and not all(transformer.done for transformer in transformers):
            await trio.sleep(0.05)
    world.is_up = False
    files.faults.clear()
    await broker.crash(kind)
    await broker.start()
    await broker.node.logs.recovered()
    world.is_up = True
    await change_version(world)
    event, world.next_life = world.next_life, trio.Event()
    event.set()
    await read_committed(world, broker.connect())


async def finish(world: World) -> None:
    """Check at the end that every effect exists once and that no transaction hangs."""
    client = world.broker.connect()
    while True:
        await trio.sleep(TIMEOUT_MS / 1000)
        readers = await read_committed(world, client)
        if all(reader.position == reader.high_watermark == reader.last_stable_offset for reader in readers):
            break
    effects = sorted(value.rpartition(b":")[2] for reader in readers for value in reader.values.values())
    assert effects == sorted(b"%d-%d" % (part, index) for part in range(INPUTS) for index in range(RECORDS))
    for partition in range(INPUTS):
        assert await committed_offset(Link(client), GROUP_ID, "in", partition) == RECORDS


CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def run(seed: int, kind: Kind, config: dict[str, str]) -> None:
    deterministic(lambda: lives(seed, kind, {**CONFIG, **config}), seed)


@pytest.mark.parametrize("seed", range(12))
def test_exactly_once_over_process_deaths(seed: int) -> None:
    run(seed, "process", {})


@pytest.mark.parametrize("seed", range(12))
def test_exactly_once_over_losses_of_power_with_flush_messages_1(seed: int) -> None:
    run(seed, "power", {"log.flush.interval.messages": "1"})


def _is_in(part: str, path: str) -> bool:
    return part in path
