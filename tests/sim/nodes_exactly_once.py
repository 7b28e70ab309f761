"""Transactions over three nodes, of which each may fail: the workload `transform` for `nodes_run`.

Each transformer writes records of its own, numbered, and commits in the same transaction how far it is. It dies now and
then, and begins where the group's offset says. In the end each record's effect is there once for who reads what is
committed, and no transaction hangs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio

from oncelog.broker.coordinators.partition_of_key import partition_of_key
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest
from oncelog.wire.messages.produce import ProduceRequest
from oncelog.wire.schema import Message
from oncelog.wire.topic_names import OFFSETS_TOPIC
from tests.harness.sim_cluster import PATIENCE_S
from tests.harness.transactional_producer import (
    ABORTABLE,
    CLASSIC,
    GROUP,
    OLDEST,
    TRANSACTION,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
    committed_offset,
)
from tests.sim.nodes_clients import LOST, TRANSACTIONAL, Client, Reader, World
from tests.sim.nodes_run import Faults, mend

GROUP_ID = "transformers"
TRANSFORMERS = 2
RECORDS = 16
"""What each transformer has to do."""
TIMEOUT_MS = 3_000
NOT_YET_S = 0.03
TRANSACTION_REQUESTS = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
)


class DiedError(Exception):
    """The transformer's process died. Another one takes over."""


class LossyLink(Link):
    """Sends requests to who is responsible, as some node knows, until they are answered. Its owner may die."""

    def __init__(self, world: World) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.world = world
        self.clients = [Client(world, TRANSACTIONAL, index) for index in range(world.plan.partitions)]

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        world = self.world
        while True:
            if not world.is_over and world.rng.random() < 0.02:
                raise DiedError
            with suppress(*LOST):
                client, node_id = await self._responsible(request)
                return await client.call(node_id, request, version, response)
            await trio.sleep(NOT_YET_S)

    async def _responsible(self, request: Message) -> tuple[Client, int]:
        """Raises ConnectionRefusedError if nobody knows."""
        client = self.clients[0]
        if isinstance(request, ProduceRequest):
            client = self.clients[request.topic_data[0].partition_data[0].index]
            return client, client.choose()[0]
        up = self.world.up()
        if not up:
            raise ConnectionRefusedError
        some = self.world.rng.choice(up).node_id
        if isinstance(request, FindCoordinatorRequest):
            return client, some
        key, key_type = GROUP_ID, GROUP
        if isinstance(request, TRANSACTION_REQUESTS):
            key, key_type = transactional_id_of(request), TRANSACTION
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        [found] = (await client.call(some, find, 4, FindCoordinatorResponse)).coordinators
        if found.error_code:
            raise ConnectionRefusedError
        if isinstance(request, OffsetFetchRequest) and found.node_id != self._group_leader():
            # A coordinator that does not know of its successor says what the offset was then, as Kafka's does. A member
            # of the group could commit nothing after that; these transformers are none.
            raise ConnectionRefusedError
        return client, found.node_id

    def _group_leader(self) -> int:
        partitions = self.world.cluster.image.topics[OFFSETS_TOPIC].partitions
        return partitions[partition_of_key(GROUP_ID, len(partitions))].leader


def transactional_id_of(request: Any) -> str:
    if isinstance(request, AddPartitionsToTxnRequest):
        return request.v3_and_below_transactional_id
    assert isinstance(request.transactional_id, str)
    return request.transactional_id


class Attempt:
    """One transaction, and its outcome as far as a response has told it: None if none has."""

    def __init__(self) -> None:
        self.values: set[bytes] = set()
        self.is_committed: bool | None = False


class Transformer:
    """All incarnations of one transactional id, one after the other."""

    def __init__(self, world: World, number: int, attempts: list[Attempt]) -> None:
        self.world = world
        self.number = number
        self.attempts = attempts
        self.is_done = False

    async def run(self) -> None:
        while not self.is_done:
            with suppress(DiedError, TransactionEndedError):
                await self.incarnation()

    async def incarnation(self) -> None:
        world = self.world
        link = LossyLink(world)
        versions = world.rng.choice((OLDEST, CLASSIC, ABORTABLE, V2, V2))
        producer = TransactionalProducer(link, f"transformer-{self.number}", versions, timeout_ms=TIMEOUT_MS)
        await producer.init()
        position = max(0, await committed_offset(link, GROUP_ID, TRANSACTIONAL, self.number))
        while position < RECORDS:
            count = min(world.rng.randint(1, 3), RECORDS - position)
            if await self.transaction(producer, position, count):
                position += count
            await trio.sleep(world.rng.uniform(0, 0.5))
        self.is_done = True

    async def transaction(self, producer: TransactionalProducer, position: int, count: int) -> bool:
        """Whether it committed."""
        world = self.world
        attempt = Attempt()
        self.attempts.append(attempt)
        for index in range(position, position + count):
            partition = world.rng.randrange(world.plan.partitions)
            value = b"%d/%d:%d" % (self.number, len(self.attempts), index)
            attempt.values.add(value)
            world.partitions[TRANSACTIONAL, partition].sent.add(value)
            await producer.send(TRANSACTIONAL, partition, [value], world.cluster.clock.now_ms())
        await producer.send_offset(GROUP_ID, TRANSACTIONAL, self.number, position + count)
        if not world.is_over and world.rng.random() < 0.1:
            await trio.sleep(world.rng.uniform(0, 2) * TIMEOUT_MS / 1000)
        is_commit = world.is_over or world.rng.random() < 0.8
        if is_commit:
            attempt.is_committed = None
        await producer.end(commit=is_commit)
        attempt.is_committed = is_commit
        return is_commit


async def transform(world: World) -> None:
    """See above."""
    attempts: list[Attempt] = []
    transformers = [Transformer(world, number, attempts) for number in range(TRANSFORMERS)]
    async with trio.open_nursery() as nursery:
        for transformer in transformers:
            nursery.start_soon(transformer.run)
        for topic, partition in world.partitions:
            nursery.start_soon(Reader(world, topic, partition).run)
        await Faults(world).run()
        await mend(world)
        world.is_over = True
        await world.cluster.wait_until(
            lambda: all(transformer.is_done for transformer in transformers), "transformers are not done"
        )
    await check(world, attempts)


async def check(world: World, attempts: list[Attempt]) -> None:
    """Read what is committed once nothing is open, and compare it with what the transformers know."""
    found: list[bytes] = []
    for index in range(world.plan.partitions):
        found += await committed_values(world, index)
    for attempt in attempts:
        there = attempt.values & set(found)
        if attempt.is_committed is not None:
            assert there == (attempt.values if attempt.is_committed else set()), (
                f"of {attempt.values}, committed: {attempt.is_committed}, there is {there}"
            )
        assert there in (set(), attempt.values), f"of {attempt.values} there is only {there}"
    effects = sorted((int(value[:1]), int(value.rpartition(b":")[2])) for value in found)
    assert effects == [(number, index) for number in range(TRANSFORMERS) for index in range(RECORDS)]


async def committed_values(world: World, partition: int) -> list[bytes]:
    """The committed records of a partition. Fails if a transaction stays open."""
    with trio.move_on_after(PATIENCE_S):
        while True:
            with suppress(*LOST, AssertionError, KeyError):  # there may be no leader yet
                leader = world.cluster.leader_of(TRANSACTIONAL, partition)
                reader = CommittedReader(TRANSACTIONAL, partition)
                client = world.cluster.nodes[leader].connect()
                while await reader.poll(client):
                    pass
                log = world.logs(TRANSACTIONAL, partition)[leader]
                if reader.position == log.log_end_offset == reader.last_stable_offset:
                    return list(reader.values.values())
            await trio.sleep(0.5)
    raise AssertionError(f"a transaction in partition {partition} stays open")
