"""Large frames through pipes: what passes before and after them."""

from __future__ import annotations

from typing import Any

import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, fetch_request, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.memory_pipes import MemoryPipes
from tests.proxy.sim_proxy import PORT, SimProxy

VALUE_BYTES = 700_000


class Answers(Interceptor):
    """Answers ListGroups without upstream."""

    apis = frozenset({"ListGroups"})

    async def on_request(self, context: RequestContext) -> Any:
        return ListGroupsResponse()


@simulated
async def test_a_response_of_the_proxys_own_leaves_after_a_large_one() -> None:
    pipes = MemoryPipes()
    async with (
        SimBroker() as broker,
        SimProxy(broker.open_transport, [("simulated", 9092)], pipes=pipes) as proxy,
    ):
        setup = broker.connect()
        await create_topic(setup, "t")
        await produce(setup, "t", batch([record(None, bytes(VALUE_BYTES))]))
        proxy.proxy.dispatcher.interception.install(Answers())
        client = proxy.connect(PORT + 1)
        await client.send(fetch_request("t", 0), 12)
        await client.send(ListGroupsRequest(), 3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(await client.receive_frame()) > VALUE_BYTES
        await client.receive(ListGroupsResponse, 3)
        assert pipes.taken > 0


@simulated
async def test_a_client_that_does_not_read_keeps_one_pipe_and_others_go_without() -> None:
    pipes = MemoryPipes(pipes_max=1)
    async with (
        SimBroker() as broker,
        SimProxy(broker.open_transport, [("simulated", 9092)], pipes=pipes) as proxy,
    ):
        setup = broker.connect()
        await create_topic(setup, "t")
        await produce(setup, "t", batch([record(None, bytes(VALUE_BYTES))]))
        slow, quick = proxy.connect(PORT + 1), proxy.connect(PORT + 1)
        await slow.send(fetch_request("t", 0), 12)
        await trio.testing.wait_all_tasks_blocked()
        assert len(pipes.in_use) == 1
        await quick.send(fetch_request("t", 0), 12)
        assert len(await quick.receive_frame()) > VALUE_BYTES
        assert pipes.refused > 0
        assert len(await slow.receive_frame()) > VALUE_BYTES
        await trio.testing.wait_all_tasks_blocked()
        assert pipes.in_use == []
