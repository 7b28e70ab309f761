"""Records read from the log as a consumer would see them: codecs, transactions, gaps, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import trio

from oncelog.broker.control import views
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.records import RecordReader
from oncelog.broker.control.types import Record
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import CLASSIC, V2, Link, TransactionalProducer

T0 = 1_700_000_000_000


@pytest.mark.parametrize("codec", range(5))
@simulated
async def test_every_field_of_records_of_every_codec(codec: int) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", 2)
        rows = [
            record(b"k", b"v", [("h", b"1"), ("h", None)]),
            record(None, None, offset_delta=1, timestamp_delta=5),
        ]
        data = batch(rows, codec=codec, base_timestamp=T0, max_timestamp=T0 + 5)
        assert (await produce(client, "t", data, 1)).error_code == 0
        first, tombstone = await views.records(broker.node, topic="t")
        assert first == Record(
            "t", 1, 0, b"v", b"k", (("h", b"1"), ("h", None)), timestamp=T0, leader_epoch=0
        )
        assert first.header("h") is None
        assert first.time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert tombstone == Record("t", 1, 1, None, timestamp=T0 + 5, leader_epoch=0)
        assert repr(first) == "Record(t-1@0, key=b'k', value=b'v', headers={h: b'1', h: None})"
        assert broker.files.held == 0


@simulated
async def test_a_range_of_a_log_of_many_segments_and_large_batches() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"segment.bytes": "2000000", "max.message.bytes": "3000000"})
        await create_topic(client, "other")
        for number in range(4):
            large = [record(None, bytes([number]) * 900_000, offset_delta=delta) for delta in range(2)]
            assert (await produce(client, "t", batch(large))).error_code == 0
        assert len(broker.node.cluster.log("t", 0).segments) == 4

        async def offsets(**arguments: Any) -> list[int]:
            return [one.offset for one in await views.records(broker.node, topic="t", **arguments)]

        assert await offsets() == list(range(8))
        assert await offsets(from_offset=3) == [3, 4, 5, 6, 7]
        assert await offsets(from_offset=3, limit=2) == [3, 4]
        assert await offsets(from_offset=8) == await offsets(limit=0) == []
        broker.node.cluster.log("t", 0).delete_records(5)
        assert await offsets() == [5, 6, 7]
        assert await views.records(broker.node, topic="other") == []


@simulated
async def test_a_read_that_ends_in_the_middle_of_a_batch() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        for number in range(7):
            assert (
                await produce(client, "t", batch([record(None, bytes(400_000 + number))]))
            ).error_code == 0
        found = await views.records(broker.node, topic="t")
        assert [len(one.value or b"") for one in found] == list(range(400_000, 400_007))


@pytest.mark.parametrize("versions", [CLASSIC, V2], ids=["classic", "v2"])
@simulated
async def test_transactions_under_both_isolation_levels(versions: Any) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(client), "app", versions)
        await producer.init()
        for sent, commit in (([b"a", b"b"], True), ([b"aborted"], False), ([b"c"], True)):
            await producer.send("t", 0, sent, T0)
            await producer.end(commit=commit)
        await producer.send("t", 0, [b"open"], T0)
        await produce(client, "t", batch([record(None, b"after")]))

        async def values(isolation: Any) -> list[bytes | None]:
            return [one.value for one in await views.records(broker.node, topic="t", isolation=isolation)]

        assert await values("read_uncommitted") == [b"a", b"b", b"aborted", b"c", b"open", b"after"]
        assert await values("read_committed") == [b"a", b"b", b"c"]
        [first, *_] = await views.records(broker.node, topic="t")
        assert first.is_transactional
        assert (first.producer_id, first.sequence) == (producer.producer_id, 0)
        await producer.end(commit=False)
        assert await values("read_committed") == [b"a", b"b", b"c", b"after"]


@simulated
async def test_a_second_read_returns_what_came_since() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", 2)
        reader = RecordReader("t")
        assert await reader.read(broker.node) == []
        for partition in (0, 1, 0):
            await produce(client, "t", batch([record(None, b"v")]), partition)
        assert [(one.partition, one.offset) for one in await reader.read(broker.node)] == [
            (0, 0),
            (0, 1),
            (1, 0),
        ]
        assert await reader.read(broker.node) == []


@pytest.mark.parametrize("view", [False, True])
@simulated
async def test_a_log_that_is_being_recovered(view: bool) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(None, b"v")]))
        await broker.crash("process")
        broker.files.is_cold = lambda path: path.endswith(".log")
        broker.files.latency_s = 10
        began = trio.current_time()
        await broker.start()
        if view:
            assert (await views.topic(broker.node, name="t")).partitions[0].high_watermark == 1
        else:
            assert len(await views.records(broker.node, topic="t")) == 1
        assert trio.current_time() - began >= 10


@pytest.mark.parametrize(
    ("topic", "arguments", "message"),
    [
        ("Order", {}, "there is no topic 'Order'; did you mean orders? (there is: orders, payments)"),
        ("zzz", {}, "there is no topic 'zzz' (there is: orders, payments)"),
        ("orders", {"partition": 3}, "there is no partition 3 of topic 'orders' (it has partitions 0 to 2)"),
        (
            "orders",
            {"isolation": "commited"},
            "isolation='commited'; did you mean read_committed or read_uncommitted? "
            "(expected: read_committed, read_uncommitted)",
        ),
        ("orders", {"from_offset": -1}, "from_offset=-1: expected an offset from 0 on"),
        ("orders", {"limit": -1}, "limit=-1: expected a number of records, or None for all"),
    ],
)
@simulated
async def test_what_does_not_exist_is_named(topic: str, arguments: Any, message: str) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "orders", 3)
        await create_topic(client, "payments")
        with pytest.raises((NotFoundError, InvalidArgumentError)) as caught:
            await views.records(broker.node, topic=topic, **arguments)
        assert str(caught.value) == message
