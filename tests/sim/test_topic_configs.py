"""Effects of a topic's configuration, seen from outside: in what a client reads after a Produce, and on the disk."""

from __future__ import annotations

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.common.batches import GZIP, LOG_APPEND_TIME, LZ4, NONE, SNAPPY, ZSTD, batch, record
from tests.harness.requests import EARLIEST, create_topic, fetch, list_offset, produce, read_all
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

TOPIC, BROKER = 2, 4
INDEX_ENTRY_BYTES = 8


def segments(broker: SimBroker, topic: str = "t") -> list[int]:
    """The base offsets of the topic's segments on the disk."""
    names = broker.files.listdir(f"{DATA_DIR}/{topic}-0")
    return sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))


def fsyncs(broker: SimBroker, topic: str = "t") -> int:
    """How often a log file of the topic was brought to the disk."""
    return sum(
        count
        for (operation, path), count in broker.files.counts.items()
        if operation == "fsync" and f"/{topic}-0/" in path and path.endswith(".log")
    )


async def produce_now(broker: SimBroker, client: SimClient, size: int = 10, *, key: bytes = b"k") -> None:
    row = await produce(client, "t", batch([record(key, bytes(size))], base_timestamp=broker.clock.now_ms()))
    assert row.error_code == 0, row


async def set_config(client: SimClient, kind: int, name: str, key: str, value: str) -> int:
    rows = [AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)])]
    response = await client.call(IncrementalAlterConfigsRequest(rows), 1, IncrementalAlterConfigsResponse)
    return int(response.responses[0].error_code)


async def earliest(client: SimClient) -> int:
    return int((await list_offset(client, "t", EARLIEST)).offset)


@simulated
async def test_segment_bytes() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"segment.bytes": "1048576"})
        for _ in range(5):
            await produce_now(broker, client, 500_000)
        assert segments(broker) == [0, 2, 4]
        assert len(await read_all(client, "t")) == 5


@simulated
async def test_segment_ms() -> None:
    """As in Kafka, the age is measured by the records' timestamps. The first batch that is too late causes the roll."""
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"segment.ms": "10000"})
        for _ in range(5):
            await produce_now(broker, client)
            await trio.sleep(4)
        assert segments(broker) == [0, 3]


@simulated
async def test_segment_jitter_ms() -> None:
    """Some of ten partitions roll earlier than others, none later than `segment.ms`."""
    async with SimBroker() as broker:
        client = broker.connect()
        configs = {"segment.ms": "10000", "segment.jitter.ms": "9000"}
        await create_topic(client, "t", 10, configs)
        rolled_at = dict.fromkeys(range(10), 0)
        for second in range(12):
            now = broker.clock.now_ms()
            for partition in range(10):
                await produce(client, "t", batch(base_timestamp=now), partition)
                names = broker.files.listdir(f"{DATA_DIR}/t-{partition}")
                if sum(name.endswith(".log") for name in names) > 1 and not rolled_at[partition]:
                    rolled_at[partition] = second
            await trio.sleep(1)
        assert all(1 <= second <= 11 for second in rolled_at.values())
        assert len(set(rolled_at.values())) > 2


@simulated
async def test_max_compaction_lag_ms_rolls_a_compacted_log() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": "10000"}
        await create_topic(client, "t", configs=configs)
        await produce_now(broker, client)
        await trio.sleep(11)
        await produce_now(broker, client)
        await trio.sleep(60)
        assert segments(broker)[-1] == 1


@pytest.mark.parametrize(("interval", "entries"), [(0, 9), (1000, 4), (1 << 20, 0)])
def test_index_interval_bytes(interval: int, entries: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", configs={"index.interval.bytes": str(interval)})
            for _ in range(10):
                await produce_now(broker, client, 500)
            await broker.stop()
            size = broker.files.size(f"{DATA_DIR}/t-0/{0:020d}.index")
            assert size == entries * INDEX_ENTRY_BYTES

    run()


@simulated
async def test_flush_ms_brings_a_log_to_the_disk_in_time() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"flush.ms": "3000"})
        await produce_now(broker, client)
        await trio.sleep(2)
        assert fsyncs(broker) == 0
        await trio.sleep(2)
        assert fsyncs(broker) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_flush_messages_shows_no_more_unflushed_records_than_it_says(count: int) -> None:
    """While the disk takes its time, readers see at most ``flush.messages`` - 1 records that it does not have."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            reader = broker.connect()
            await create_topic(reader, "t", configs={"flush.messages": str(count)})
            broker.files.latency_s = 10
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(produce, broker.connect(), "t")
                await trio.sleep(1)
                assert (await fetch(reader, "t")).high_watermark == count - 1
            assert (await fetch(reader, "t")).high_watermark == 5

    run()


@simulated
async def test_retention_ms() -> None:
    async with SimBroker(config={"log.retention.check.interval.ms": "1000"}) as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"retention.ms": "60000", "segment.ms": "10000"})
        for _ in range(4):
            await produce_now(broker, client)
            await trio.sleep(20)
        assert await earliest(client) == 1
        await trio.sleep(120)
        assert await earliest(client) == 4
        assert await read_all(client, "t", offset=4) == []


@simulated
async def test_retention_bytes() -> None:
    async with SimBroker(config={"log.retention.check.interval.ms": "1000"}) as broker:
        client = broker.connect()
        configs = {"retention.bytes": "2000000", "segment.bytes": "1048576"}
        await create_topic(client, "t", configs=configs)
        for _ in range(10):
            await produce_now(broker, client, 500_000)
        await trio.sleep(60)
        # Five segments of a little more than a megabyte: without three of them there are still 2 MB.
        assert await earliest(client) == 6
        assert len(await read_all(client, "t", offset=6)) == 4


@simulated
async def test_cleanup_policy_compact_keeps_the_last_of_each_key() -> None:
    config = {"log.cleaner.backoff.ms": "1000"}
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        configs = {"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.01"}
        await create_topic(client, "t", configs=configs)
        for _ in range(3):
            await produce_now(broker, client, key=b"a")
            await produce_now(broker, client, key=b"b")
        await trio.sleep(11)
        await produce_now(broker, client, key=b"a")
        await trio.sleep(120)
        # Offset 6 is in the active segment, which is never compacted; below it the last of each key is left.
        assert [one.base_offset for one in await read_all(client, "t")] == [4, 5, 6]


@pytest.mark.parametrize(
    ("compression_type", "sent", "stored"),
    [
        ("producer", LZ4, LZ4),
        ("producer", NONE, NONE),
        ("uncompressed", GZIP, NONE),
        ("gzip", NONE, GZIP),
        ("snappy", ZSTD, SNAPPY),
        ("lz4", SNAPPY, LZ4),
        ("zstd", LZ4, ZSTD),
    ],
)
def test_compression_type(compression_type: str, sent: int, stored: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", configs={"compression.type": compression_type})
            assert (await produce(client, "t", batch(20, codec=sent))).error_code == 0
            [found] = await read_all(client, "t")
            plain = b"".join(record(b"k%d" % i, b"v%d" % i, offset_delta=i) for i in range(20))
            assert (found.codec, found.payload, found.record_count) == (stored, plain, 20)

    run()


@simulated
async def test_message_timestamp_type() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"message.timestamp.type": "LogAppendTime"})
        await trio.sleep(5)
        now = broker.clock.now_ms()
        row = await produce(client, "t", batch(base_timestamp=1))
        assert row.log_append_time_ms == now
        [found] = await read_all(client, "t")
        assert (found.max_timestamp, found.attributes & LOG_APPEND_TIME) == (now, LOG_APPEND_TIME)
        assert (await list_offset(client, "t", now)).offset == 0
        assert (await list_offset(client, "t", now + 1)).offset == -1


@simulated
async def test_max_message_bytes() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"max.message.bytes": "1000"})
        await produce_now(broker, client, 900)
        row = await produce(client, "t", batch([record(b"k", bytes(1000))]))
        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await fetch(client, "t")).high_watermark == 1


@simulated
async def test_message_timestamp_bounds() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        configs = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"}
        await create_topic(client, "t", configs=configs)
        now = broker.clock.now_ms()
        for shift, code in ((-1001, 32), (-1000, 0), (2000, 0), (2001, 32)):
            assert (await produce(client, "t", batch(base_timestamp=now + shift))).error_code == code


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_a_change_has_its_effect_at_once(kind: int) -> None:
    """On the topic itself, or on the cluster's default that it inherits."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            await produce_now(broker, client, 500)
            key = "max.message.bytes" if kind == TOPIC else "message.max.bytes"
            assert await set_config(client, kind, "t" if kind == TOPIC else "", key, "100") == 0
            row = await produce(client, "t", batch([record(b"k", bytes(500))]))
            assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE

    run()
