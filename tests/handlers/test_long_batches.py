"""Batches that take long to check: only their own connection waits for them, and they end as if checked at once."""

from __future__ import annotations

import time
import tracemalloc

import pytest
import trio
import trio.testing

from oncelog.broker.log.environment import LONG_SEARCHES_MAX
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.validate import LongValidation, read_produced_batch, validate, validate_at_once
from oncelog.wire.validation_rules import ValidationRules
from tests.common.batches import TRANSACTIONAL
from tests.common.large_batches import LARGE_BATCHES, empty_zstd_frames, numbered_records, one_large_record
from tests.harness.requests import create_topic, fetch, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated, simulated_work
from tests.harness.steps import LongestTurn
from tests.harness.transactional_producer import CLASSIC, V2, Link, TransactionalProducer, Versions

LONG = numbered_records(40_000).batch()
"""Longer than what is checked at once."""
BASE_MS = 1_700_000_000_000
PART = 40
"""The tests send a fortieth of what an attacker would: a turn takes no longer for more."""
SEARCHED = 3
LINES_MAX = 400_000
"""Lines of Python in a turn: about ten milliseconds."""


async def send(client: SimClient, large: bytes, partition: int = 0) -> None:
    rows = [TopicProduceData("a", partition_data=[PartitionProduceData(partition, large)])]
    await client.send(ProduceRequest(None, 1, 30_000, rows), 9)


async def outcome(client: SimClient) -> tuple[int, int]:
    """The error code and base offset of a batch that was sent before."""
    response = await client.receive(ProduceResponse, 9)
    [row] = response.responses[0].partition_responses
    return row.error_code, row.base_offset


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["producer", "gzip"])
@pytest.mark.parametrize("name", LARGE_BATCHES)
def test_others_are_served_meanwhile(name: str, compression: str) -> None:
    large = LARGE_BATCHES[name](PART)
    data = large.batch()

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            attacker = broker.connect()
            await create_topic(attacker, "a", configs={"compression.type": compression})
            await produce(attacker, "a")
            turn = LongestTurn()
            await send(attacker, data)
            code, base_offset = await outcome(attacker)
            turn.end()
            assert turn.lines < LINES_MAX, turn.where.most_common(8)
            # Java's stack is too small for so many gzip members; offsets out of order are rewritten.
            is_valid = large.is_valid or "members" in name or compression != "producer"
            assert (code, base_offset) == ((0, 1) if is_valid else (ErrorCode.UNKNOWN_SERVER_ERROR, -1))

    run()


@pytest.mark.slow
@pytest.mark.parametrize("timestamp", [None, -3])
@pytest.mark.parametrize("name", [name for name in LARGE_BATCHES if LARGE_BATCHES[name](PART).is_valid])
def test_others_are_served_while_its_records_are_searched_by_time(name: str, timestamp: int | None) -> None:
    """By the largest timestamp of the batch, which no record but the last may have, and for the largest one (-3)."""
    data = LARGE_BATCHES[name](PART).batch()
    largest = int.from_bytes(data[35:43], "big")

    @simulated_work(steps=20)
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a", SEARCHED)
            for partition in range(SEARCHED):
                await send(client, data, partition)
                assert await outcome(client) == (0, 0)
            asked = largest if timestamp is None else timestamp
            rows = [ListOffsetsPartition(partition, -1, asked) for partition in range(SEARCHED)]
            request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("a", rows)])
            turn = LongestTurn()
            response = await client.call(request, 7, ListOffsetsResponse)
            turn.end()
            assert {(row.error_code, row.offset) for row in response.topics[0].partitions} == {(0, 0)}
            assert turn.lines < LINES_MAX, turn.where.most_common(8)

    run()


@pytest.mark.slow
def test_few_batches_are_decompressed_at_once_to_search_them() -> None:
    """Each of many connections searches a batch of its own: a turn of each would hold what it has decompressed."""
    size, clients = 6_000_000, LONG_SEARCHES_MAX + 4
    data = one_large_record(size).batch()
    peak = 0

    @simulated_work(steps=1)
    async def run() -> None:
        nonlocal peak
        async with SimBroker() as broker:
            senders = [broker.connect() for _ in range(clients)]
            await create_topic(senders[0], "a", clients)
            for partition in range(clients):
                await send(senders[0], data, partition)
                assert await outcome(senders[0]) == (0, 0)
            tracemalloc.start()
            async with trio.open_nursery() as nursery:
                for partition, client in enumerate(senders):
                    nursery.start_soon(list_offset, client, "a", -3, partition)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()

    run()
    assert size < peak < (LONG_SEARCHES_MAX + 2) * size


@pytest.mark.slow
def test_a_batch_that_takes_long_is_checked_as_at_once() -> None:
    """Which is what every other test of validation tests."""
    rules = ValidationRules(codec=1)
    for name in ("a million empty records", "100,000 empty zstd frames", "60,000 records of long varints"):
        large = LARGE_BATCHES[name](PART // 2).batch()
        now_ms = time.time_ns() // 1_000_000
        outcomes: list[object] = []
        for check in (validate_at_once, validate):
            batch, header = read_produced_batch(memoryview(large), rules)
            try:
                valid = check(batch, header, rules, now_ms)
            except LongValidation as long:
                try:
                    while True:
                        next(long.steps)
                except StopIteration as end:
                    valid = end.value
                except KafkaError as error:
                    outcomes.append(error.code)
                    continue
            except KafkaError as error:
                outcomes.append(error.code)
                continue
            outcomes.append(bytes(valid.batch))
        assert outcomes[0] == outcomes[1], name


@simulated
async def test_the_next_request_of_the_connection_comes_after_it_and_others_before() -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(other, "a")
        await send(client, LONG)
        await send(client, numbered_records(1).batch())
        assert (await produce(other, "a")).base_offset == 0
        assert [await outcome(client) for _ in range(2)] == [(0, 1), (0, 40_001)]
        assert (await fetch(other, "a", 0)).high_watermark == 40_002


@simulated
async def test_the_topic_is_deleted_meanwhile() -> None:
    from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(other, "a")
        await send(client, LONG)
        await other.call(DeleteTopicsRequest(topic_names=["a"]), 3, DeleteTopicsResponse)
        assert (await outcome(client))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_the_peer_is_lost_meanwhile() -> None:
    """The batch is given up: nothing was answered, and nobody goes on with the work."""
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(other, "a")
        for _ in range(8):
            lost = broker.connect()
            await send(lost, LONG)
            await trio.lowlevel.checkpoint()
            lost.transport.close()
        await send(client, numbered_records(2).batch())
        assert (await outcome(client))[0] == 0
        await trio.testing.wait_all_tasks_blocked()


def test_log_append_time_is_the_time_of_the_append() -> None:
    now_ms = time.time_ns() // 1_000_000
    rules = ValidationRules(log_append_time=True)
    batch, header = read_produced_batch(memoryview(empty_zstd_frames(10).batch()), rules)
    valid = validate(batch, header, rules, now_ms).appended_at(now_ms + 5)
    assert (valid.log_append_time, valid.max_timestamp) == (now_ms + 5, now_ms + 5)
    _, header = read_produced_batch(valid.batch, rules)
    assert header.max_timestamp == now_ms + 5
    assert header.is_log_append_time


@pytest.mark.parametrize("versions", [CLASSIC, V2])
def test_a_transaction_that_ends_meanwhile_gets_no_record_after_its_end(versions: Versions) -> None:
    large = numbered_records(40_000)

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "a")
            producer = TransactionalProducer(Link(other), "id", versions)
            await producer.init()
            await producer.send("a", 0, [b"first"], BASE_MS)
            batch = large.batch(TRANSACTIONAL, (producer.producer_id, producer.epoch, 1))
            rows = [TopicProduceData("a", partition_data=[PartitionProduceData(0, batch)])]
            await client.send(ProduceRequest("id", -1, 30_000, rows), versions.produce)
            await producer.end(commit=True)
            response = await client.receive(ProduceResponse, versions.produce)
            [row] = response.responses[0].partition_responses
            high_watermark = (await fetch(other, "a", 0)).high_watermark
            if row.error_code:
                code = ErrorCode.INVALID_PRODUCER_EPOCH if versions.is_v2 else ErrorCode.INVALID_TXN_STATE
                assert (row.error_code, high_watermark) == (code, 2)  # a record and the marker
            else:  # it was there before the end, and the marker follows it
                assert (row.base_offset, high_watermark) == (1, 40_002)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("versions", [CLASSIC, V2])
def test_a_transactional_request_for_many_partitions_gives_turns(versions: Versions) -> None:
    partitions = 350

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a", partitions)
            producer = TransactionalProducer(Link(client), "id", versions)
            await producer.init()
            if not versions.is_v2:
                for partition in range(partitions):
                    await producer.add("a", partition)
            owner = producer.producer_id, producer.epoch, 0
            data = numbered_records(2).batch(TRANSACTIONAL, owner)
            rows = [PartitionProduceData(partition, data) for partition in range(partitions)]
            request = ProduceRequest("id", -1, 30_000, [TopicProduceData("a", partition_data=rows)])
            turn = LongestTurn()
            response = await client.call(request, versions.produce, ProduceResponse)
            turn.end()
            assert turn.lines < LINES_MAX, turn.where.most_common(8)
            assert {row.error_code for row in response.responses[0].partition_responses} == {0}
            await producer.end(commit=True)
            for partition in (0, 99, 100, 349):
                assert (await fetch(client, "a", 0, partition)).high_watermark == 3

    run()
