"""Random requests in random pieces, through a proxy and directly: the responses are the same, byte for byte.

Their correlation ids, order and number are among the bytes. Requests are in flight at the same time, of which some wait
and some get no response; interceptors hold, answer and re-encode some of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated
from tests.proxy.memory_pipes import MemoryPipes
from tests.proxy.memory_reactor import MemoryReactor
from tests.proxy.requests import LARGE_BYTES, TOPIC, random_requests
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

BROKER = [("simulated", 9092)]


class Holds(Interceptor):
    """Holds some requests and some responses, and handles some requests itself. Changes nothing that a client sees."""

    def __init__(self, proxy: SimProxy, rng: random.Random, *, only_reads: bool = False) -> None:
        self.only_reads = only_reads
        self.seen: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._proxy = proxy
        self._rng = rng

    async def on_request(self, context: RequestContext) -> Any:
        self.seen[context.api.row.name] += 1
        choice = self._rng.randrange(4)
        if choice == 0:
            await trio.sleep(self._rng.random())
        if choice == 1 and not self.only_reads and getattr(context.request, "acks", None) != 0:
            return await self._proxy.proxy.dispatcher.handle_behind_interceptors(context)
        return None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        if self._rng.randrange(4) == 0:
            await trio.sleep(self._rng.random())
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self.done[context.api.row.name] += 1


async def converse(
    client: SimClient, frames: list[tuple[bytes, bool]], piece: int, rng: random.Random
) -> list[bytes]:
    """Send the frames in pieces of up to so many bytes while responses are read; return these."""
    received: list[bytes] = []

    async def receive() -> None:
        for _, is_answered in frames:
            if is_answered:
                received.append((await client.receive_frame()).replace(HOST.encode(), b"simulated"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        data = b"".join(frame for frame, _ in frames)
        position = 0
        while position < len(data):
            size = rng.randint(1, piece)
            await client.send_bytes(data[position : position + size])
            position += size
            if rng.random() < 0.05:
                await trio.sleep(rng.random())
    return received


async def prepare(broker: SimBroker, size: int = LARGE_BYTES) -> None:
    client = broker.connect()
    await create_topic(client, TOPIC)
    await produce(client, TOPIC, batch([record(None, bytes(size))], base_timestamp=0))
    client.transport.close()


async def compare(
    seed: int,
    pipe_bytes: int,
    piece: int,
    count: int,
    kind: str,
    *,
    large: bool,
    pipes: MemoryPipes | None = None,
    reactor: MemoryReactor | None = None,
) -> None:
    rng = random.Random(seed)
    frames = random_requests(rng, count, large=large)
    async with SimBroker(seed) as broker:
        await prepare(broker, LARGE_BYTES if large else 10)
        direct = await converse(broker.connect(), frames, 10**6, rng)
    async with (
        SimBroker(seed, pipe_bytes_max=pipe_bytes) as broker,
        SimProxy(
            broker.open_transport, BROKER, pipe_bytes_max=pipe_bytes, pipes=pipes, reactor=reactor
        ) as proxy,
    ):
        await prepare(broker, LARGE_BYTES if large else 10)
        holds = Holds(proxy, rng, only_reads=kind == "reads")
        if kind != "passes":
            proxy.proxy.dispatcher.interception.install(holds)
        client = proxy.connect(PORT + 1)
        through = await converse(client, frames, piece, rng)
        assert len(through) == len(direct)
        for one, other in zip(through, direct, strict=True):
            assert one == other
        assert holds.seen == holds.done
        if kind != "passes":
            assert sum(holds.seen.values()) == count
        client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert proxy.connections == []
        assert proxy.proxy.server.frame_budget.used == 0
        assert broker.server_connections() == []


@pytest.mark.parametrize("kind", ["passes", "reads", "changes"])
@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_as_direct(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    await compare(
        seed, rng.choice((5_000, 100_000, 300_000)), rng.choice((100_000, 10**6)), 60, kind, large=True
    )


@pytest.mark.parametrize("pipes_max", [1, 8])
@pytest.mark.parametrize("seed", range(3))
@simulated
async def test_as_direct_through_pipes(seed: int, pipes_max: int) -> None:
    rng = random.Random(seed)
    pipes = MemoryPipes(rng.choice((1_000, 100_000)), pipes_max)
    await compare(
        seed,
        rng.choice((5_000, 100_000, 300_000)),
        rng.choice((100_000, 10**6)),
        60,
        "passes",
        large=True,
        pipes=pipes,
    )
    assert pipes.taken > 0
    assert pipes.in_use == []


@pytest.mark.parametrize("kind", ["passes", "reads", "changes"])
@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_as_direct_in_turns(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    pipes, reactor = MemoryPipes(), MemoryReactor()
    pipe_bytes, piece = rng.choice((5_000, 100_000, 300_000)), rng.choice((100_000, 10**6))
    await compare(seed, pipe_bytes, piece, 60, kind, large=True, pipes=pipes, reactor=reactor)
    assert kind != "passes" or reactor.ended > 0


@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_small_requests_as_direct_in_turns(seed: int) -> None:
    rng = random.Random(seed)
    reactor = MemoryReactor()
    pipe_bytes = rng.choice((5_000, 300_000))
    await compare(seed, pipe_bytes, 1_000, 80, "passes", large=False, reactor=reactor)
    assert reactor.ended > 0


@pytest.mark.parametrize("kind", ["passes", "reads", "changes"])
@pytest.mark.parametrize("has_turns", [False, True])
@pytest.mark.parametrize("pipe_bytes", [1, 3, 13])
@simulated
async def test_every_boundary(pipe_bytes: int, has_turns: bool, kind: str) -> None:
    reactor = MemoryReactor() if has_turns else None
    await compare(7, pipe_bytes, 5, 12, kind, large=False, reactor=reactor)


async def until_lost(client: SimClient, frames: list[tuple[bytes, bool]]) -> int:
    """Send and receive until the connection is lost; return how many responses came."""
    count = 0

    async def send() -> None:
        try:
            for frame, _ in frames:
                await client.send_bytes(frame)
        except (OSError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        try:
            while True:
                await client.receive_frame()
                count += 1
        except (OSError, trio.ClosedResourceError, ConnectionEndedError):
            nursery.cancel_scope.cancel()
    return count


@pytest.mark.parametrize("victim", ["client", "upstream", "broker"])
@pytest.mark.parametrize("kind", ["passes", "changes", "pipes", "turns"])
@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_death_of_either_side(seed: int, kind: str, victim: str) -> None:
    rng = random.Random(seed)
    frames = random_requests(rng, 40)
    pipes = MemoryPipes() if kind == "pipes" else None
    reactor = MemoryReactor() if kind == "turns" else None
    async with (
        SimBroker(seed, pipe_bytes_max=20_000) as broker,
        SimProxy(broker.open_transport, BROKER, pipe_bytes_max=20_000, pipes=pipes, reactor=reactor) as proxy,
    ):
        await prepare(broker)
        holds = Holds(proxy, rng)
        if kind == "changes":
            proxy.proxy.dispatcher.interception.install(holds)
        client = proxy.connect(PORT + 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_lost, client, frames)
            for _ in range(rng.randrange(200)):
                await trio.lowlevel.checkpoint()
            if rng.random() < 0.5:
                await trio.sleep(rng.random())
            if victim == "client":
                client.transport.break_off()
            elif victim == "broker":
                await broker.crash("process")
            else:
                for connection in broker.server_connections():
                    connection.close("a test")
        await trio.sleep(5)
        assert proxy.connections == []
        assert proxy.proxy.server.frame_budget.used == 0
        assert pipes is None or pipes.in_use == []
        assert holds.seen == holds.done
        if victim != "broker":
            assert broker.server_connections() == []
