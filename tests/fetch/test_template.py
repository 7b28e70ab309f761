"""Responses from templates: byte for byte those of a broker whose delayed fetches complete themselves."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.fetch.template import ResponseTemplate
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, produce_request
from tests.harness.sim_broker import WITHOUT_SHORTCUTS, SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import deterministic, simulated
from tests.harness.transactional_producer import V2, Link, TransactionalProducer

SEEDS = range(6)
CONSUMERS = 8
ROUNDS = 60
VALUE_BYTES = (0, 5, 50, 51, 52, 120, 8_000, 20_000)
"""Sizes about which a varint of the length of a batch gets another byte, and one that is sent from the file."""


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The correlation ids of responses from a template."""
    found: list[int] = []
    put = ResponseTemplate.put

    def told(self: ResponseTemplate, correlation_id: int, *rest: Any) -> None:
        found.append(correlation_id)
        put(self, correlation_id, *rest)

    monkeypatch.setattr(ResponseTemplate, "put", told)
    return found


class _Consumer:
    """One reader of one or two partitions, in a session or not."""

    def __init__(self, rng: random.Random, topic_id: bytes) -> None:
        self.version = rng.choice((4, 11, 12, 12, 13, 15, 17, 17))
        self.isolation = rng.choice((0, 0, 1))
        self.min_bytes = rng.choice((1, 1, 1, 300))
        self.partitions = rng.choice(([0], [0], [1], [0, 1]))
        self.topic_id = topic_id
        self.offsets = dict.fromkeys(self.partitions, 0)
        self.in_session = self.version >= 7 and rng.random() < 0.5
        self.session_ids = [0, 0]
        """One for each broker: they are drawn by lot, in the order of the responses."""
        self.epoch = 0 if self.in_session else -1
        self.changed = list(self.partitions)

    def request(self, broker: int) -> FetchRequest:
        asked = self.changed if self.epoch > 0 else self.partitions
        rows = [FetchPartition(one, fetch_offset=self.offsets[one]) for one in asked]
        return FetchRequest(
            max_wait_ms=1_000,
            min_bytes=self.min_bytes,
            isolation_level=self.isolation,
            session_id=self.session_ids[broker],
            session_epoch=self.epoch,
            topics=[FetchTopic("t", self.topic_id, rows)] if rows else [],
        )

    def see(self, answer: FetchResponse, other: FetchResponse) -> None:
        """Take in the two brokers' responses."""
        assert (answer.session_id == 0) == (other.session_id == 0)
        self.changed = []
        if self.in_session:
            self.session_ids = [answer.session_id, other.session_id]
            self.epoch = self.epoch + 1 if answer.session_id else 0
        if answer.error_code:
            self.session_ids, self.epoch = [0, 0], 0
        for topic in answer.responses or ():
            for row in topic.partitions or ():
                if row.records:
                    end = row.last_stable_offset if self.isolation else row.high_watermark
                    self.offsets[row.partition_index] = end
                    self.changed.append(row.partition_index)


@pytest.mark.parametrize("seed", SEEDS)
def test_responses_to_random_consumers(seed: int, put: list[int]) -> None:
    async def run() -> None:
        rng = random.Random(seed)
        async with SimBroker(seed) as one, SimBroker(seed, WITHOUT_SHORTCUTS) as other:
            brokers = (one, other)
            ids = [await create_topic(broker.connect(), "t", 2) for broker in brokers]
            assert ids[0] == ids[1]
            consumers = [_Consumer(rng, ids[0]) for _ in range(CONSUMERS)]
            clients = [[broker.connect() for broker in brokers] for _ in consumers]
            writers = [broker.connect() for broker in brokers]
            producers = []
            for broker in brokers:
                producers.append(TransactionalProducer(Link(broker.connect()), "x", V2))
                await producers[-1].init()
            waiting: set[int] = set()
            for _ in range(ROUNDS):
                for number in range(CONSUMERS):
                    if number not in waiting and rng.random() < 0.8:
                        waiting.add(number)
                        for which, client in enumerate(clients[number]):
                            await client.send(consumers[number].request(which), consumers[number].version)
                await trio.testing.wait_all_tasks_blocked()
                await _write(rng, writers, producers, brokers)
                await (trio.sleep(2) if rng.random() < 0.2 else trio.testing.wait_all_tasks_blocked())
                for number in sorted(waiting):
                    mine, theirs = clients[number]
                    assert mine.unread() == theirs.unread()
                    if mine.unread():
                        waiting.discard(number)
                        frames = await mine.receive_frame(), await theirs.receive_frame()
                        version = consumers[number].version
                        assert _without_session(frames[0], version) == _without_session(frames[1], version)
                        consumers[number].see(*[_decoded(frame, version) for frame in frames])

    deterministic(run, seed)
    assert len(put) > ROUNDS // 2


async def _write(
    rng: random.Random,
    writers: list[SimClient],
    producers: list[TransactionalProducer],
    brokers: tuple[SimBroker, SimBroker],
) -> None:
    partition, kind = rng.randrange(2), rng.randrange(6)
    value, commit = bytes(rng.choice(VALUE_BYTES)), rng.random() < 0.5
    records = batch([record(None, value)])
    for writer, producer, broker in zip(writers, producers, brokers, strict=True):
        if kind == 0:
            await producer.send("t", partition, [value], broker.clock.now_ms())
        elif kind == 1 and producer.sequences:
            await producer.end(commit=commit)
            producer.sequences.clear()
        else:
            request = produce_request("t", records, partition=partition)
            answer = await writer.call(request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def _header_bytes(version: int) -> int:
    return 5 if version >= 12 else 4


def _without_session(frame: bytes, version: int) -> bytes:
    """The frame without its session id, which stands behind the throttle time and the error code."""
    if version < 7:
        return frame
    at = _header_bytes(version) + 6
    return frame[:at] + frame[at + 4 :]


def _decoded(frame: bytes, version: int) -> FetchResponse:
    header = _header_bytes(version)
    return FetchResponse.decoder(version)(memoryview(frame), header)[0]


def test_the_topic_is_deleted_and_made_again_meanwhile(put: list[int]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, writer = broker.connect(), broker.connect()
            for _ in range(3):
                topic_id = await create_topic(writer, "t")
                rows = [FetchPartition(0, fetch_offset=0)]
                request = FetchRequest(
                    max_wait_ms=60_000,
                    min_bytes=1,
                    session_epoch=-1,
                    topics=[FetchTopic("t", topic_id, rows)],
                )
                for offset in (0, 1):
                    rows[0].fetch_offset = offset
                    await client.send(request, 13)
                    await trio.testing.wait_all_tasks_blocked()
                    await writer.call(produce_request("t", batch()), 9, ProduceResponse)
                    answer = await client.receive(FetchResponse, 13)
                    assert answer.responses[0].topic_id == topic_id
                    assert answer.responses[0].partitions[0].high_watermark == offset + 1
                gone = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000)
                await writer.call(gone, 6, DeleteTopicsResponse)

    run()
    assert len(put) == 6
