"""A jump leaves the broker as the same time would have, lived through: the same scenario twice, compared.

Left out is compaction: it may clean at once what it would have cleaned in two steps, by the dirty ratio of the time.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio

from oncelog.broker.control import views
from oncelog.broker.control.due import occurrence
from oncelog.broker.control.moving_time import TimeMove
from oncelog.broker.control.types import Occurrence
from oncelog.wire.topic_names import INTERNAL_TOPICS
from tests.common.batches import batch, record
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.offset_requests import commit
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import CLASSIC, V2, Link, TransactionalProducer

HOUR_S = 3600
CONFIG = {
    "offsets.retention.minutes": "600",
    "transactional.id.expiration.ms": str(12 * HOUR_S * 1000),
    "connections.max.idle.ms": "-1",
    "log.cleaner.enable": "false",
    # Lived through, these cost only time.
    "log.flush.offset.checkpoint.interval.ms": "600000",
    "log.flush.start.offset.checkpoint.interval.ms": "600000",
    "replica.high.watermark.checkpoint.interval.ms": "600000",
}


class Scenario:
    """Groups, transactions and topics of a broker, drawn by ``seed``."""

    def __init__(self, broker: SimBroker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)

    async def play(self) -> None:
        rng = self.rng
        client = await coordinated(self.broker)
        for number in range(3):
            retention_ms = rng.randrange(1, 48) * HOUR_S * 1000
            await create_topic(client, f"t{number}", 2, {"retention.ms": str(retention_ms)})
        acts = [self.group] * 4 + [self.transaction] * 5 + [self.records] * 6 + [self.offsets] * 4
        rng.shuffle(acts)
        for number, act in enumerate(acts):
            await act(number)
            await trio.sleep(rng.random() * 2)

    async def group(self, number: int) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 3)):
            member = SimMember(self.broker, f"g{rng.randrange(4)}", rng.choice([None, f"i{number}"]))
            member.session_ms = rng.randrange(6_000, 60_000)
            member.rebalance_ms = rng.randrange(6_000, 60_000)
            await member.join()
            if member.instance is None:
                await member.send_join()  # nobody else joins: it waits, or leads
            await trio.testing.wait_all_tasks_blocked()

    async def transaction(self, number: int) -> None:
        rng = self.rng
        producer = TransactionalProducer(
            Link(self.broker.connect()),
            f"id{number}",
            rng.choice([CLASSIC, V2]),
            timeout_ms=rng.randrange(1_000, 120_000),
        )
        await producer.init()
        await producer.send(f"t{rng.randrange(3)}", rng.randrange(2), [b"v"], self.broker.clock.now_ms())
        if rng.random() < 0.4:
            await producer.send_offset(f"simple{rng.randrange(3)}", "t0", 0, number)
        if rng.random() < 0.3:
            await producer.end(commit=rng.random() < 0.5)

    async def records(self, number: int) -> None:
        data = batch([record(None, b"value")], base_timestamp=self.broker.clock.now_ms())
        await produce(self.broker.connect(), f"t{self.rng.randrange(3)}", data, self.rng.randrange(2))

    async def offsets(self, number: int) -> None:
        client = self.broker.connect()
        await commit(client, f"simple{self.rng.randrange(3)}", {f"t{self.rng.randrange(3)}": {0: number}})


async def state_of(broker: SimBroker) -> dict[str, Any]:
    """All that clients can see, without the times of transactions: Kafka finds their end only every ten seconds."""
    node = broker.node
    return {
        "groups": [await views.group(node, group_id=name) for name in await views.groups(node)],
        "topics": [await views.topic(node, name=name) for name in await views.topics(node)],
        "transactions": [
            (one.transactional_id, one.state, one.producer_id, one.producer_epoch, one.partitions)
            for one in await views.transactions(node)
        ],
        "producers": [
            (one.topic, one.partition, one.producer_id, one.producer_epoch, one.transaction_start_offset)
            for one in await views.producers(node)
        ],
    }


async def lived_or_jumped(
    seed: int, seconds: float, *, jumps: bool
) -> tuple[dict[str, Any], Counter[str], list[Occurrence]]:
    """Play the scenario and let ``seconds`` pass. Returns the state, and what came due: how often, and in order."""
    async with SimBroker(seed, CONFIG) as broker:
        await Scenario(broker, seed).play()
        node = broker.node
        move = TimeMove((node,), broker.clock, lambda: None)
        happened: list[Occurrence] = []
        if jumps:
            await move.advance(seconds, keep_members=False, timeout_s=10)
        else:
            node.logs.background.listener = lambda what, about: happened.append(
                occurrence(broker.clock.now_ms(), what, about)
            )
            await trio.sleep(seconds)
            await move.advance(0, keep_members=False, timeout_s=10)
        happened += move.happened
        return await state_of(broker), _counted(happened), happened


def _counted(happened: list[Occurrence]) -> Counter[str]:
    """How many offsets of each group expired, and how often everything else came due."""
    count: Counter[str] = Counter()
    for one in happened:
        if one.what == "offsets expired":
            count[f"offsets of {one.about['group']}"] += int(one.about["count"])
        elif one.about.get("topic") not in INTERNAL_TOPICS:
            count[str(one)] += 1
    return count


@pytest.mark.parametrize("seed", range(20))
def test_a_jump_is_the_same_as_waiting(seed: int) -> None:
    @simulated
    async def run() -> None:
        rng = random.Random(seed)
        seconds = rng.randrange(20, 400) if seed % 3 == 0 else rng.randrange(2 * HOUR_S, 16 * HOUR_S)
        state, count, _ = await lived_or_jumped(seed, seconds, jumps=False)
        jumped, jumped_count, happened = await lived_or_jumped(seed, seconds, jumps=True)
        assert jumped_count == count, f"seed {seed}, {seconds} s"
        for what, value in state.items():
            assert jumped[what] == value, f"{what}, seed {seed}, {seconds} s"
        assert [one.at_ms for one in happened] == sorted(one.at_ms for one in happened)
        assert count, "nothing came due"

    run()
