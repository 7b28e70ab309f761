"""The fast path of Produce: its responses, byte for byte, are those of a broker without it."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.fast_produce import PREFIX_BYTES_MAX, FastProduce
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.common.batches import TRANSACTIONAL, batch, record
from tests.harness.requests import create_topic, fetch, produce, produce_request, read_all
from tests.harness.sim_broker import WITHOUT_SHORTCUTS, SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import deterministic, simulated
from tests.harness.transactional_producer import CLASSIC, V2, Link, TransactionalProducer, Versions

SEEDS = range(8)
REQUESTS = 150
SHAPES = 12
TOPICS: dict[str, dict[str, str] | None] = {
    "plain": {},
    "a-name-of-another-length": {},
    "compacted": {"cleanup.policy": "compact"},
    "flushed": {"flush.messages": "1"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "2000"},
    "replicated": {"min.insync.replicas": "2"},
    "missing": None,
    "deleted": {},
    "__consumer_offsets": None,
}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every request that the fast path was asked for: whether it took it."""
    found: list[bool] = []
    append = FastProduce.append

    def told(self: FastProduce, *arguments: object) -> bool:
        found.append(append(self, *arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(FastProduce, "append", told)
    return found


def _records(rng: random.Random) -> bytes | None:
    kind = rng.randrange(10)
    if kind == 0:
        damaged = bytearray(batch())
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        return bytes(damaged)
    if kind == 1:
        return batch()[: rng.randrange(70)]
    if kind == 2:
        return rng.choice((None, b"", batch() + batch(), batch(attributes=TRANSACTIONAL, producer=(5, 0, 0))))
    if kind == 3:
        return batch([record(value=bytes(rng.choice((60, 120, 127, 128, 3000, 20_000))))])
    if kind == 4:
        return batch(2, producer=(7, 0, rng.randrange(3) * 2))
    return batch(rng.randrange(1, 5))


def _shape(rng: random.Random) -> tuple[int, int, int, list[tuple[str, list[int]]]]:
    """Version, acks, time-out, and (topic, partitions): what a producer's requests have in common."""
    rows = [
        (rng.choice(list(TOPICS)), [rng.choice((0, 0, 1, 9)) for _ in range(1 if rng.random() < 0.9 else 2)])
        for _ in range(1 if rng.random() < 0.9 else 2)
    ]
    return rng.choice((8, 9, 11, 13)), rng.choice((-1, 1, 1, 1, 2)), rng.choice((1000, 2000)), rows


def _request(
    rng: random.Random, shapes: list[Any], topic_ids: dict[str, bytes]
) -> tuple[int, ProduceRequest]:
    version, acks, timeout_ms, rows = rng.choice(shapes)
    topics = [
        TopicProduceData(
            name,
            topic_ids.get(name, b"\7" * 16),
            [PartitionProduceData(partition, _records(rng)) for partition in partitions],
        )
        for name, partitions in rows
    ]
    return version, ProduceRequest(None, acks, timeout_ms, topics)


async def _call(client: SimClient, version: int, request: ProduceRequest) -> bytes | None:
    """The answer after its correlation id; None where the connection was closed instead."""
    await client.send(request, version)
    try:
        return (await client.receive_frame())[4:]
    except ConnectionEndedError:
        return None


@pytest.mark.parametrize("seed", SEEDS)
def test_responses_are_those_of_the_plain_path(seed: int, fast: list[bool]) -> None:
    async def run() -> None:
        rng = random.Random(seed)
        shapes = [_shape(rng) for _ in range(SHAPES)]
        shapes += [(version, 1, 1000, [("plain", [version % 2])]) for version in (9, 10, 12, 13)]
        async with SimBroker() as one, SimBroker(config=WITHOUT_SHORTCUTS) as other:
            brokers = (one, other)
            for broker in brokers:
                admin = broker.connect()
                ids = {
                    name: await create_topic(admin, name, 2, configs)
                    for name, configs in TOPICS.items()
                    if configs is not None
                }
            assert ids == {name: await _topic_id(one, name) for name in ids}
            client, plain_client = one.connect(), other.connect()
            for number in range(REQUESTS):
                if number == REQUESTS // 2:
                    for broker in brokers:
                        gone = DeleteTopicsRequest([DeleteTopicState("deleted")], timeout_ms=1000)
                        await broker.connect().call(gone, 6, DeleteTopicsResponse)
                version, request = _request(rng, shapes, ids)
                plain = await _call(plain_client, version, request)
                assert await _call(client, version, request) == plain, (seed, number, version, request)
            for name in ("plain", "append-time", "small", "flushed"):
                for partition in (0, 1):
                    logs = [await read_all(broker.connect(), name, partition) for broker in brokers]
                    assert logs[0] == logs[1]

    deterministic(run, seed)
    assert fast.count(True) > REQUESTS // 10


async def _topic_id(broker: SimBroker, name: str) -> bytes:
    topic = broker.node.cluster.topic(name)
    assert topic is not None
    return bytes(topic.topic_id)


@pytest.mark.parametrize("versions", [CLASSIC, V2], ids=["classic", "v2"])
def test_transactional_batches(versions: Versions, fast: list[bool]) -> None:
    """The first of a producer's connection, or of a transaction, may be left to the other way; the rest is not."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            producer = TransactionalProducer(Link(client), "x", versions)
            await producer.init()
            expected = []
            for number in range(4):
                for _ in range(3):
                    offset = await producer.send("t", 0, [b"%d" % number], broker.clock.now_ms())
                    if number % 2 == 0:
                        expected.append(offset)
                row = await fetch(client, "t", isolation_level=1)
                assert row.last_stable_offset == 4 * number
                await producer.end(commit=number % 2 == 0)
            # Markers take an offset each; what was aborted is named.
            row = await fetch(client, "t", isolation_level=1)
            assert (row.last_stable_offset, expected) == (16, [0, 1, 2, 8, 9, 10])
            assert [one.first_offset for one in row.aborted_transactions or ()] == [4, 12]
            # No transaction is open now: a batch of an old epoch, and one of the next transaction that is not added.
            stale = TransactionalProducer(producer.link, "x", versions)
            stale.producer_id, stale.epoch = producer.producer_id, producer.epoch - 1
            for sender in (stale, producer) if versions is CLASSIC else (stale,):
                request = sender.produce_request("t", 0, [b"no"], broker.clock.now_ms())
                answers = [
                    (await one.call(request, versions.produce, ProduceResponse)).responses
                    for one in (client, broker.connect())
                ]
                assert answers[0] == answers[1]
                assert answers[0][0].partition_responses[0].error_code != 0

    run()
    assert fast.count(True) >= 7


def _prefix(client_id: bytes) -> bytes:
    return struct.pack(">hhih", 0, 9, 0, len(client_id)) + client_id + b"\0"


async def _produce_as(client: SimClient, client_id: bytes, partition: int) -> int:
    """The error code of a plain Produce, by a client of that name."""
    request = produce_request("t", batch(), partition)
    await client.send_frame(_prefix(client_id) + request.encode(9))
    frame = await client.receive_frame()
    answer = ProduceResponse.decode(frame, 9, 5)
    return int(answer.responses[0].partition_responses[0].error_code)


def remember_at_most(broker: SimBroker, known_max: int) -> None:
    """Limit the prefixes that are remembered, once there was a Produce."""
    fast_produce = broker.node.dispatcher.fast_produce
    assert fast_produce is not None
    fast_produce.known_max = known_max


def test_only_so_many_and_short_requests_are_kept(fast: list[bool]) -> None:
    kept_max = 10

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "t", 3 * kept_max)
            for partition in range(3 * kept_max):
                assert await _produce_as(client, b"me", partition) == 0
                remember_at_most(broker, kept_max)
            assert True not in fast
            # Another connection that begins the same way profits as well, once it is known how long its requests are.
            for partition in (3 * kept_max - 1, 3 * kept_max - 2):
                assert await _produce_as(other, b"me", partition) == 0
            assert fast[-1]
            asked = len(fast)
            long_named = broker.connect()
            for _ in range(2):
                assert await _produce_as(long_named, b"x" * PREFIX_BYTES_MAX, 0) == 0
            assert len(fast) == asked

    run()


def test_a_prefix_that_was_refused_is_not_remembered(fast: list[bool]) -> None:
    """Else the next request would pass by whoever refused this one."""

    @simulated
    async def run() -> None:
        async with SimBroker(config={"auto.create.topics.enable": "false"}) as broker:
            client = broker.connect()
            for _ in range(3):
                assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert fast == []
            await create_topic(client, "t")
            for offset in range(3):
                assert (await produce(client, "t")).base_offset == offset
            assert fast == [True, True]

    run()


@pytest.mark.slow
def test_principals_that_are_gone_take_no_memory(fast: list[bool]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            [connection] = broker.server_connections()
            assert await _produce_as(client, b"me", 0) == 0
            remember_at_most(broker, 10)

            async def log_in(count: int) -> None:
                for _ in range(count):
                    connection.principal = f"User:{len(fast)}"
                    for _ in range(2):
                        assert await _produce_as(client, b"me", 0) == 0

            await log_in(100)
            # The second request of each is taken; what is remembered for another principal counts for nothing.
            assert fast == [True] * 100
            tracemalloc.start()
            try:
                await log_in(1000)
                # About 190,000 of these bytes are the log's; principals that stayed would take as many.
                assert tracemalloc.get_traced_memory()[0] < 260_000
            finally:
                tracemalloc.stop()

    run()


@simulated
async def test_a_repeated_request_of_acks_0_is_not_answered_and_its_error_closes() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        for _ in range(3):
            await client.send(produce_request("t", batch(), acks=0), 9)
        assert (await produce(client, "t")).base_offset == 3
        await client.send(produce_request("t", batch(), acks=0), 9)
        await client.send(produce_request("t", batch(crc=1), acks=0), 9)
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


@simulated
async def test_a_bug_of_ours_ends_the_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimBroker() as broker:
        broker.node.host.fail_on_internal_errors = False
        client = broker.connect()
        await create_topic(client, "t")
        assert (await produce(client, "t")).error_code == 0
        log = broker.node.cluster.leader_partition("t", 0).log
        with monkeypatch.context() as patched:
            patched.setattr(type(log), "append", lambda *_, **__: 1 / 0)
            with pytest.raises(ConnectionEndedError):  # a Produce answer has no error of its own
                await produce(client, "t")
        assert (await produce(broker.connect(), "t")).base_offset == 1


@simulated
async def test_the_repeat_of_a_batch_that_is_not_on_the_disk_yet_waits_for_it() -> None:
    """Though by now no batch would have to: its topic's setting has changed meanwhile."""
    async with SimBroker() as broker:
        first, second = broker.connect(), broker.connect()
        await create_topic(first, "t", configs={"flush.messages": "1"})
        await create_topic(first, "u")
        for client in (first, second):
            await produce(client, "t")
        log = broker.node.cluster.leader_partition("t", 0).log
        broker.files.latency_s = 5
        request = produce_request("t", batch(producer=(7, 0, 0)))
        await first.send(request, 9)
        await trio.testing.wait_all_tasks_blocked()
        log.update_config(broker.node.cluster.leader_partition("u", 0).log.config)
        await second.send(request, 9)
        await trio.testing.wait_all_tasks_blocked()
        assert (first.unread(), second.unread(), log.log_end_offset) == (0, 0, 3)
        offsets = [
            (await client.receive(ProduceResponse, 9)).responses[0].partition_responses[0].base_offset
            for client in (first, second)
        ]
        assert (offsets, log.recovery_point) == ([2, 2], 3)


@simulated
async def test_a_topic_without_partitions_is_no_prefix() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        empty = ProduceRequest(None, 1, 1000, [TopicProduceData("t")])
        assert (await client.call(empty, 9, ProduceResponse)).responses == []
        assert (await produce(client, "t")).base_offset == 0
