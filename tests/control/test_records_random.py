"""Records of a log that grows, is compacted, cut at its start and restarted, compared with what Fetch returns."""

from __future__ import annotations

import random

import pytest
import trio

from oncelog.broker.control import views
from oncelog.broker.control.records import ISOLATION_LEVELS, RecordReader
from oncelog.broker.control.types import IsolationLevel
from tests.common.batches import CONTROL, batch, record
from tests.harness.requests import create_topic, list_offset, produce, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import CommittedReader, Link, TransactionalProducer, rows_of

STEPS = 60
EARLIEST = -2
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
BROKER = {"log.cleaner.backoff.ms": "1000"}
Found = dict[int, bytes]


async def fetched(client: SimClient, isolation: IsolationLevel) -> Found:
    """Offset -> value of all records that a consumer would see."""
    start = (await list_offset(client, "t", EARLIEST)).offset
    if isolation == "read_committed":
        reader = CommittedReader("t", 0, start)
        while await reader.poll(client):
            pass
        return reader.values
    return {
        one.base_offset + delta: value
        for one in await read_all(client, "t", offset=start)
        if not one.attributes & CONTROL
        for delta, _, value in rows_of(one)
        if one.base_offset + delta >= start
    }


@pytest.mark.parametrize("seed", range(8))
def test_it_is_what_a_consumer_sees(seed: int) -> None:
    compactions = 0

    @simulated
    async def run() -> None:
        nonlocal compactions
        chance = random.Random(seed)
        async with SimBroker(seed, BROKER) as broker:
            client = broker.connect()
            await create_topic(client, "t", configs=CONFIGS)
            producers = [
                TransactionalProducer(Link(client), f"app-{number}", timeout_ms=900_000)
                for number in range(3)
            ]
            opened = [False] * len(producers)
            for producer in producers:
                await producer.init()
            reader = RecordReader("t")
            seen: set[int] = set()
            for step in range(STEPS):
                keys = [f"{chance.randrange(8)}".encode() for _ in range(chance.randint(1, 5))]
                values = [f"{step}-{number}".encode() for number in range(len(keys))]
                number = chance.randrange(len(producers))
                match chance.randrange(9):
                    case 0 | 1:
                        rows = zip(keys, values, strict=True)
                        data = [record(key, value, offset_delta=at) for at, (key, value) in enumerate(rows)]
                        codec = chance.randrange(5)
                        await produce(
                            client, "t", batch(data, codec=codec, base_timestamp=broker.clock.now_ms())
                        )
                    case 2 | 3 | 4:
                        await producers[number].send("t", 0, values, broker.clock.now_ms(), keys)
                        opened[number] = True
                    case 5 | 6:
                        if opened[number]:
                            await producers[number].end(commit=chance.random() < 0.5)
                            opened[number] = False
                    case 7:
                        size = broker.node.cluster.log("t", 0).size
                        await trio.sleep(20)
                        compactions += broker.node.cluster.log("t", 0).size < size
                    case _:
                        log = broker.node.cluster.log("t", 0)
                        if chance.random() < 0.3:
                            log.delete_records(chance.randint(log.log_start_offset, log.high_watermark))
                        client = await broker.restart()
                        for producer in producers:
                            producer.link.client = client
                for isolation in ISOLATION_LEVELS:
                    ours = await views.records(broker.node, topic="t", isolation=isolation)
                    theirs = await fetched(client, isolation)
                    assert {one.offset: one.value for one in ours} == theirs, (seed, step, isolation)
                    assert [one.offset for one in ours] == sorted(theirs)
                new = {one.offset for one in await reader.read(broker.node)}
                assert not new & seen
                seen |= new

    run()
    assert compactions
