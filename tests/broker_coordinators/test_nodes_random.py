"""Leaders of all partitions move at random, also back and to nobody for a while, below clients that go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.metadata import FeatureLevelRecord
from oncelog.wire.topic_names import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTIONS_TOPIC
from tests.harness.node_clients import NodesLink
from tests.harness.requests import produce
from tests.harness.share_readers import ShareReader
from tests.harness.sim_nodes import SimNodes
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    TransactionalProducer,
    TransactionEndedError,
    Versions,
    committed_offset,
)

TOPICS = (TRANSACTIONS_TOPIC, OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, "t")
ACCEPT = 1


@asynccontextmanager
async def disturbed_nodes(seed: int) -> AsyncIterator[tuple[SimNodes, Uuid, trio.CancelScope]]:
    """Three nodes whose leaders move until the scope is cancelled."""
    rng = random.Random(seed)
    async with SimNodes(encodes=seed % 2 == 0) as nodes:
        nodes.commit([FeatureLevelRecord(name="share.version", feature_level=1)])
        for name in TOPICS:
            topic_id = nodes.create_topic(name, [rng.randint(1, 3)])

        async def move() -> None:
            while True:
                await trio.sleep(rng.expovariate(2))
                topic = rng.choice(TOPICS)
                if rng.random() < 0.2:
                    before = nodes.leader(topic, 0)
                    nodes.elect(topic, 0, -1)
                    await trio.sleep(rng.random())
                    nodes.elect(topic, 0, before)
                else:
                    await nodes.move(topic, 0, rng.randint(1, 3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            yield nodes, topic_id, nursery.cancel_scope
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("versions", [CLASSIC, V2])
def test_transactions_end_as_their_producers_were_told(versions: Versions, seed: int) -> None:
    @simulated
    async def run() -> None:
        async with disturbed_nodes(seed) as (nodes, _, disturbing):
            link = NodesLink(nodes)
            rng = random.Random(seed)
            producer = TransactionalProducer(link, "id", versions)
            expected: list[bytes] = []
            maybe: set[bytes] = set()
            offset = -1
            await producer.init()
            for number in range(25):
                value, commit = b"%d" % number, rng.random() < 0.7
                try:
                    await producer.send("t", 0, [value], nodes.clock.now_ms())
                    await producer.send_offset("g", "t", 0, number)
                    await producer.end(commit=commit)
                except TransactionEndedError:
                    maybe.add(value)
                    await producer.init()
                    continue
                if commit:
                    expected.append(value)
                    offset = number
            disturbing.cancel()
            await trio.sleep(10)
            reader = CommittedReader("t", 0)
            while reader.position < nodes.log("t", 0).log_end_offset:
                if not await reader.poll(link):  # type: ignore[arg-type]
                    await trio.sleep(0.01)
            values = [value for _, value in sorted(reader.values.items())]
            assert [value for value in values if value not in maybe] == expected
            assert max(Counter(values).values()) == 1
            assert await committed_offset(link, "g", "t", 0) >= offset
            assert len(maybe) < 10

    run()


@pytest.mark.parametrize("seed", range(6))
def test_what_a_share_group_has_accepted_comes_to_nobody_again(seed: int) -> None:
    @simulated
    async def run() -> None:
        async with disturbed_nodes(seed) as (nodes, topic_id, disturbing):
            for _ in range(60):
                while (await produce(nodes.connect(nodes.leader("t", 0)), "t", acks=-1)).error_code:
                    await trio.sleep(0.1)
            await nodes[1].share_persister.initialize("g", topic_id, 0, 0, 0)
            accepted: set[int] = set()
            member = 0
            while len(accepted) < 60:
                if member > 200:
                    disturbing.cancel()
                member += 1
                leader = nodes.leader("t", 0)
                reader = ShareReader(nodes.connect(max(leader, 1)), topic_id, f"m{member}")
                rows = await reader.fetch(wait_ms=500, most=7)
                if not rows or rows[0].error_code:
                    await trio.sleep(0.2)
                    continue
                for one in rows[0].acquired_records:
                    assert accepted.isdisjoint(range(one.first_offset, one.last_offset + 1))
                    code = await reader.acknowledge((one.first_offset, one.last_offset, [ACCEPT]))
                    if code == ErrorCode.NONE:
                        accepted.update(range(one.first_offset, one.last_offset + 1))
                await reader.leave()

    run()
