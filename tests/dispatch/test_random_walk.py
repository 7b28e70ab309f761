"""Responses are the same, byte for byte, whether an interceptor that does nothing comes and goes, or there is none.

An interceptor takes turns of the loop, so a delayed fetch may find more records, or fewer, than without it. Two rules
make that impossible: while a Fetch waits, one Produce is sent at a time; and no Produce and no waiting Fetch is sent
behind a Fetch that waits.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.wire.framing import FrameReader
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.common.batches import batch, record
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import deterministic

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.schema import Message
    from tests.harness.sim_client import SimClient

SEEDS = range(12)
STEPS = 250
CLIENTS = 6
KEPT = {"retention.ms": "-1"}
TOPICS = {"plain": KEPT, "flushed": {**KEPT, "flush.messages": "1"}}
VALUE_BYTES = (0, 5, 60, 3_000, 20_000)
WAITS_MS = (0, 300, 19_000)
"""Such times are over between two steps, which take two seconds or no time."""
PIPELINED_PRODUCES_MAX = 4


class Nothing(Interceptor):
    """Does nothing, in some turns of the loop. It has randomness of its own, so the walk does not depend on it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seen = 0

    async def _take_turns(self) -> None:
        self.seen += 1
        for _ in range(self.rng.choice((0, 0, 1, 3))):
            await trio.lowlevel.checkpoint()

    async def on_request(self, context: RequestContext) -> Any:
        await self._take_turns()

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        await self._take_turns()
        return response


class Walker:
    """One client of both brokers: the same requests to each, several in flight."""

    def __init__(
        self, rng: random.Random, brokers: tuple[SimBroker, SimBroker], ids: dict[str, bytes]
    ) -> None:
        self.rng = rng
        self.ids = ids
        self.ends = [_End(broker.connect()) for broker in brokers]
        self.expected: deque[tuple[type[Message], int]] = deque()
        self.session_epoch = 0

    async def send_some(self, produces_max: int) -> None:
        is_behind = bool(self.expected)
        kinds = ("produce", "produce", "produce", "fetch", "fetch", "metadata", "offsets")
        for _ in range(self.rng.choice((1, 1, 2, 5, 8))):
            kind = self.rng.choice(kinds)
            if kind == "produce" and produces_max:
                produces_max -= 1
                await self._send_produce()
            elif kind == "fetch":
                wait_ms = 0 if is_behind else self.rng.choice(WAITS_MS)
                await self._send_fetch(wait_ms)
                if wait_ms:
                    return
            elif kind == "metadata":
                await self._send_metadata()
            else:
                await self._send_offsets()

    async def _send(self, version: int, *requests: Message, has_response: bool = True) -> None:
        for end, request in zip(self.ends, requests * (2 // len(requests)), strict=True):
            await end.client.send(request, version)
        if has_response:
            self.expected.append((type(requests[0]), version))

    async def _send_produce(self) -> None:
        rng = self.rng
        name, version = rng.choice(list(TOPICS)), rng.choice((8, 9, 9, 9, 13))
        acks = rng.choice((-1, 1, 1, 1, 0))
        crc = 1 if acks and rng.random() < 0.1 else None
        records = batch([record(None, bytes(rng.choice(VALUE_BYTES)))], crc=crc)
        rows = [PartitionProduceData(rng.randrange(2), records)]
        topic = TopicProduceData(name, self.ids[name], rows)
        await self._send(version, ProduceRequest(None, acks, 1000, [topic]), has_response=acks != 0)

    async def _send_fetch(self, wait_ms: int) -> None:
        rng = self.rng
        name = rng.choice(list(TOPICS))
        in_session = rng.random() < 0.5
        if in_session and self.session_epoch < 0:
            return  # the response that begins the session has not come yet
        version = 12 if in_session else rng.choice((4, 11, 12, 17))
        partitions = rng.choice(([0], [0], [1], [0, 1]))
        offset, min_bytes = rng.choice((0, 1, 5, 20, 60)), rng.choice((1, 1, 500))
        requests = [
            FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=min_bytes,
                isolation_level=offset % 2,
                session_id=end.session_id if in_session else 0,
                session_epoch=self.session_epoch if in_session else -1,
                topics=[
                    FetchTopic(
                        name, self.ids[name], [FetchPartition(one, fetch_offset=offset) for one in partitions]
                    )
                ],
            )
            for end in self.ends
        ]
        await self._send(version, *requests)
        if in_session:
            self.session_epoch = self.session_epoch + 1 if self.session_epoch else -1

    async def _send_metadata(self) -> None:
        topics = [MetadataRequestTopic(name=name) for name in self.rng.sample(sorted(TOPICS), 1)]
        await self._send(9, MetadataRequest(topics, False))

    async def _send_offsets(self) -> None:
        name, partition, timestamp = (
            self.rng.choice(list(TOPICS)),
            self.rng.randrange(2),
            self.rng.choice((-1, -2)),
        )
        row = ListOffsetsPartition(partition, -1, timestamp)
        await self._send(7, ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [row])]))

    def compare(self, *, is_end: bool) -> None:
        """The responses that have come; at the end, all."""
        for end in self.ends:
            end.read()
        counts = [len(end.frames) for end in self.ends]
        assert counts[0] == counts[1]
        if is_end:
            assert counts[0] == len(self.expected)
        for _ in range(counts[0]):
            request, version = self.expected.popleft()
            frames = [end.frames.popleft() for end in self.ends]
            if request is FetchRequest and version >= 7:
                at = (5 if version >= 12 else 4) + 6
                for number, (end, frame) in enumerate(zip(self.ends, frames, strict=True)):
                    response = FetchResponse.decoder(version)(memoryview(frame), at - 6)[0]
                    assert not response.error_code
                    if response.session_id:
                        end.session_id = response.session_id
                        self.session_epoch = max(self.session_epoch, 1)
                    frames[number] = frame[:at] + frame[at + 4 :]
            assert frames[0] == frames[1], (request, version)


class _End:
    """A connection to one of the brokers."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.frames: deque[bytes] = deque()
        self.session_id = 0
        self._reader = FrameReader()

    def read(self) -> None:
        buffer = memoryview(bytearray(64 * 1024))
        while self.client.transport.pending():
            count = self.client.transport.receive_into(buffer)
            self._reader.feed(buffer[:count])
        while (frame := self._reader.next_frame()) is not None:
            self.frames.append(frame)


@pytest.mark.parametrize("seed", SEEDS)
def test_responses_are_those_of_a_broker_that_never_had_an_interceptor(seed: int) -> None:
    seen: list[int] = []

    async def run() -> None:
        rng = random.Random(seed)
        async with (
            SimBroker(seed, pipe_bytes_max=1 << 24) as watched,
            SimBroker(seed, pipe_bytes_max=1 << 24) as plain,
        ):
            brokers = (watched, plain)
            for broker in brokers:
                admin = broker.connect()
                ids = {name: await create_topic(admin, name, 2, configs) for name, configs in TOPICS.items()}
            walkers = [Walker(rng, brokers, ids) for _ in range(CLIENTS)]
            interceptor = Nothing(random.Random(seed))
            is_installed = False
            for _ in range(STEPS):
                latency_s = rng.choice((0, 0, 0.2))
                for broker in brokers:
                    broker.files.latency_s = latency_s
                walker = rng.choice(walkers)
                if walker.expected:
                    produces_max = 0
                else:
                    produces_max = 1 if any(one.expected for one in walkers) else PIPELINED_PRODUCES_MAX
                await walker.send_some(produces_max)
                if rng.random() < 0.3:
                    for _ in range(rng.randrange(8)):
                        await trio.lowlevel.checkpoint()
                    is_installed = not is_installed
                    dispatcher = watched.node.dispatcher
                    (dispatcher.interception.install if is_installed else dispatcher.interception.remove)(
                        interceptor
                    )
                await (trio.sleep(2) if latency_s else trio.testing.wait_all_tasks_blocked())
                for walker in walkers:
                    walker.compare(is_end=False)
            await trio.sleep(61)
            for walker in walkers:
                walker.compare(is_end=True)
            for broker in brokers:
                assert broker.files.held == 0
                assert broker.node.host.internal_errors == 0
            seen.append(interceptor.seen)

    deterministic(run, seed)
    assert seen[0] > STEPS // 4
