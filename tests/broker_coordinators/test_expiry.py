"""Unused offsets expire after offsets.retention.minutes, and their topic does not grow."""

from __future__ import annotations

import pytest
import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.offsets_topic import OFFSETS_TOPIC, ONE_PARTITION, find, log_of
from tests.harness.requests import create_topic, read_all
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

MINUTE_S = 60


@simulated
async def test_offsets_expire() -> None:
    config = {
        **ONE_PARTITION,
        "offsets.retention.minutes": "5",
        "offsets.retention.check.interval.ms": "1000",
    }
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        await find(client)
        await commit(client, "g", {"a": {0: 1, 1: 1}})
        await trio.sleep(4 * MINUTE_S)
        await commit(client, "g", {"a": {0: 2}})
        await trio.sleep(1.5 * MINUTE_S)
        assert await fetch_offsets(client, "g") == {("a", 0): 2}
        client = await broker.restart()
        assert await fetch_offsets(client, "g") == {("a", 0): 2}
        await trio.sleep(4 * MINUTE_S)
        assert broker.node.groups.shard("g").groups == {}
        await broker.crash("process")
        await broker.start()
        await trio.sleep(1)
        assert broker.node.groups.shard("g").groups == {}


@pytest.mark.parametrize("codec", range(5))
def test_the_codec_of_the_topic(codec: int) -> None:
    @simulated
    async def run() -> None:
        config = {**ONE_PARTITION, "offsets.topic.compression.codec": str(codec)}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "a", 2)
            await find(client)
            await commit(client, "g", {"a": {0: 1, 1: (2, "note " * 50)}})
            [batch] = await read_all(client, OFFSETS_TOPIC)
            assert (batch.attributes, batch.record_count) == (codec, 2)
            await broker.restart()
            expected = {("a", 0): 1, ("a", 1): (2, "note " * 50)}
            assert await fetch_offsets(broker.connect(), "g") == expected

    run()


def test_an_unknown_codec() -> None:
    with pytest.raises(ConfigError, match="compression type id: 5"):
        BrokerConfig({"offsets.topic.compression.codec": "5"})


@simulated
async def test_an_interval_longer_than_a_timer_can_take() -> None:
    config = {**ONE_PARTITION, "offsets.retention.check.interval.ms": str((1 << 63) - 1)}
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        await commit(client, "g", {"a": {0: 1}})
        await trio.sleep(MINUTE_S)
        assert await fetch_offsets(client, "g") == {("a", 0): 1}


@simulated
async def test_the_cleaner_keeps_the_last_offsets() -> None:
    config = {
        **ONE_PARTITION,
        "log.roll.ms": "10000",
        "log.cleaner.backoff.ms": "1000",
        "log.cleaner.min.cleanable.ratio": "0.1",
        "log.cleaner.delete.retention.ms": "1000",
    }
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        await create_topic(client, "a", 3)
        await find(client)
        for number in range(1_000):
            await commit(client, "g", {"a": {number % 3: number}})
            if number % 100 == 99:
                await trio.sleep(11)
        await trio.sleep(MINUTE_S)
        assert log_of(broker).log_end_offset == 1_000
        assert log_of(broker).size < 20_000
        expected = {("a", 999 % 3): 999, ("a", 998 % 3): 998, ("a", 997 % 3): 997}
        assert await fetch_offsets(client, "g") == expected
        client = await broker.restart()
        await trio.sleep(1)
        assert await fetch_offsets(client, "g") == expected
        assert log_of(broker).segments[0].base_offset == 0
