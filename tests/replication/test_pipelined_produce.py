"""Produce requests on one connection to a leader with followers: while responses wait, the fast path stays on, and
says the same as the plain path.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import trio

from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.fetch.delayed_fetches import DelayedFetches
from oncelog.broker.handlers.services import Services
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.requests.request import DelayedProduce
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.harness.replicated_nodes import LISTENER, START_MS, ReplicatedNode, running_nodes
from tests.harness.simulation import simulated

VERSION = 12
ACKS_ALL = -1


def frame(value: bytes, correlation_id: int, *, timeout_ms: int = 1000) -> memoryview:
    builder = BatchBuilder()
    builder.append(START_MS, None, value)
    data = PartitionProduceData(0, memoryview(bytearray(builder.build())))
    request = ProduceRequest(None, ACKS_ALL, timeout_ms, [TopicProduceData("t", partition_data=[data])])
    return memoryview(bytearray(encode_request(request, VERSION, correlation_id, "client")))[4:]


class PipeliningClient:
    """A connection to a node, whose responses are taken in their order."""

    def __init__(self, node: ReplicatedNode, *, is_fast: bool) -> None:
        config: Any = SimpleNamespace(
            current=node.config,
            static=SimpleNamespace(
                oncelog_fast_produce_enable=is_fast, oncelog_response_templates_enable=False
            ),
        )
        authorization: Any = SimpleNamespace(
            authorizer=None,
            allows=lambda *_, **__: True,
            filter=lambda *_: lambda name: True,
            identity=lambda context: "somebody",
        )
        nothing: dict[str, Any] = dict.fromkeys(Services._fields)
        services = Services(**nothing)._replace(
            handlers=HANDLERS,
            config=config,
            authorization=authorization,
            cluster=node.cluster,
            delayed_fetches=DelayedFetches(),
            lines=LineLimiter(node.clock),
            note_internal_error=lambda: None,
            replication=node.replication,
        )
        self.dispatcher = Dispatcher(services)
        writer = SimpleNamespace(out=bytearray(), ranges=[])
        self.connection: Any = SimpleNamespace(
            pending=deque(),
            produce_prefixes=None,
            writer=writer,
            principal="somebody",
            client_id="client",
            listener_name=LISTENER,
            charge=lambda seconds: None,
            muted_until=0,
        )
        self.requests: list[Any] = []
        """As they were decoded; the fast path decodes only the first of those that begin alike."""

    def send(self, *frames: memoryview) -> None:
        """Send requests one after the other; no response was taken yet."""
        for one in frames:
            pending = self.dispatcher.dispatch(self.connection, one)
            assert isinstance(pending, DelayedProduce)
            self.requests.append(pending.context.request)
            self.connection.pending.append(pending)

    async def responses(self) -> list[bytes]:
        """Take the responses, as bytes."""
        found = []
        while self.connection.pending:
            pending = self.connection.pending[0]
            out = self.connection.writer.out
            del out[:]
            await self.dispatcher.complete(pending)
            found.append(bytes(out))
            self.connection.pending.popleft()
        return found


@simulated
async def test_the_fast_path_says_what_the_plain_path_says() -> None:
    answers = []
    for is_fast in (True, False):
        async with running_nodes() as nodes:
            nodes.create(min_insync_replicas="2")
            await nodes[1].produce(b"first")
            client = PipeliningClient(nodes[1], is_fast=is_fast)
            client.send(*(frame(b"%d" % number, number) for number in range(5)))
            assert (client.requests[1] is client.requests[2]) == is_fast
            answers.append(await client.responses())
            assert nodes[1].log.log_end_offset == 6
            assert nodes[1].log.high_watermark == 6
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 5


@simulated
async def test_its_errors_too() -> None:
    answers = []
    for is_fast in (True, False):
        async with running_nodes() as nodes:
            nodes.create(min_insync_replicas="2")
            await nodes[1].produce(b"first")
            nodes.network.cut(2, 1)
            nodes.network.cut(3, 1)
            client = PipeliningClient(nodes[1], is_fast=is_fast)
            client.send(frame(b"a", 0), frame(b"b", 1), frame(b"c", 2))
            began = trio.current_time()
            timed_out = await client.responses()
            assert trio.current_time() - began < 1.1  # each counts from its request
            client.send(frame(b"d", 3, timeout_ms=60_000), frame(b"e", 4, timeout_ms=60_000))
            nodes.elect(2)
            answers.append([*timed_out, *await client.responses()])
    assert answers[0] == answers[1]
