"""The lines of `--trace`: which requests are told of, and what became of each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import CloseConnection, RequestContext
from oncelog.broker.trace.trace import Selection, Trace
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.common.batches import batch, record
from tests.harness.offset_requests import commit
from tests.harness.requests import create_topic, fetch, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import CLIENT_ID, ConnectionEndedError, SimClient
from tests.harness.simulation import simulated

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z #(\d+) ([<>]) (\S+) client:\d+ (\w+) v(\d+)(.*)")


class Traced:
    def __init__(self, broker: SimBroker, client: SimClient) -> None:
        self.broker = broker
        self.client = client
        self.lines: list[str] = []

    @property
    def told(self) -> list[tuple[str, str]]:
        """The direction and the API of each line."""
        found = [LINE.fullmatch(line) for line in self.lines]
        assert all(found), self.lines
        return [(one[2], one[4]) for one in found if one]


@asynccontextmanager
async def traced(selection: Selection = Selection(), **how: Any) -> AsyncIterator[Traced]:  # noqa: B008
    async with SimBroker() as broker:
        client = broker.connect()
        for name in ("orders", "other"):
            await create_topic(client, name)
        found = Traced(broker, client)
        Trace(found.lines.append, selection, **how).attach(broker.node)
        yield found
        assert broker.files.held == 0


@simulated
async def test_a_line_each() -> None:
    async with traced() as seen:
        await produce(seen.client, "orders", batch(2))
        await fetch(seen.client, "orders", 0)
        assert seen.told == [(">", "Produce"), ("<", "Produce"), (">", "Fetch"), ("<", "Fetch")]
        request, response = (LINE.fullmatch(line) for line in seen.lines[:2])
        assert request is not None
        assert response is not None
        assert request[1] == response[1]
        assert re.match(r" \d+ B: acks=1 .*name=orders .*<1 batch, 2 records, \d+ bytes>", request[6])
        assert re.match(r" \d+ B \d+\.\d ms \(handler \d+\.\d ms\): responses=\[\{name=orders", response[6])


@simulated
async def test_sizes_are_those_of_the_frames() -> None:
    async with traced() as seen:
        frames: list[int] = []

        class Sizes(Interceptor):
            def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
                assert context.frame is not None
                frames.append(len(context.frame) + 4)

        seen.broker.node.dispatcher.interception.install(Sizes())
        await seen.client.send(ListGroupsRequest(), 4)
        received = len(await seen.client.receive_frame())
        assert f" {frames[0]} B:" in seen.lines[0]
        assert f" {received + 4} B " in seen.lines[1]


@simulated
async def test_records_on_request() -> None:
    async with traced(with_records=True) as seen:
        await produce(
            seen.client,
            "orders",
            batch([record(b"k", b"coffee"), record(None, bytes(20_000), offset_delta=1)]),
        )
        await fetch(seen.client, "orders", 0)
        assert "[@0 key=k value=coffee, @1 key=null value=0x00" in seen.lines[0]
        assert "[@0 key=k value=coffee, @1 key=null value=0x00" in seen.lines[3]


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (Selection(apis=("Produce",)), ["Produce", "Produce"]),
        (Selection(apis=("Prod*", "OffsetC*")), ["Produce", "Produce", "OffsetCommit"]),
        (Selection(topics=("orders",)), ["Produce", "Fetch", "OffsetCommit"]),
        (Selection(topics=("o*",), apis=("Produce",)), ["Produce", "Produce"]),
        (Selection(groups=("billing",)), ["OffsetCommit"]),
        (Selection(groups=("billing",), topics=("other",)), []),
        (Selection(clients=("nobody",)), []),
        (Selection(clients=("nobody", f"?{CLIENT_ID[1:]}"), apis=("Fetch",)), ["Fetch"]),
    ],
)
@simulated
async def test_selection(selection: Selection, told: list[str]) -> None:
    async with traced(selection) as seen:
        await produce(seen.client, "orders")
        await produce(seen.client, "other")
        await fetch(seen.client, "orders", 0)
        await commit(seen.client, "billing", {"orders": {0: 1}})
        assert [api for direction, api in seen.told if direction == ">"] == told
        assert [api for direction, api in seen.told if direction == "<"] == told


class Act(Interceptor):
    """Does something to every Produce."""

    apis = frozenset(("Produce",))

    def __init__(self, act: str) -> None:
        self.act = act

    async def on_request(self, context: RequestContext) -> Any:
        if self.act == "close" and context.api_name == "Produce":
            raise CloseConnection("on purpose")

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        return None if self.act == "drop" and context.api_name == "Produce" else response


@pytest.mark.parametrize(
    ("act", "end"),
    [("close", "connection closed: on purpose"), ("drop", "response dropped"), ("", "no response")],
)
@simulated
async def test_what_became_of_it(act: str, end: str) -> None:
    async with traced() as seen:
        seen.broker.node.dispatcher.interception.install(Act(act))
        await seen.client.send(produce_request("orders", batch(), acks=0 if not act else 1), 8)
        await seen.client.send(ListGroupsRequest(), 4)
        if act == "close":
            with pytest.raises(ConnectionEndedError):
                await seen.client.receive(ListGroupsResponse, 4)
        else:
            await seen.client.receive(ListGroupsResponse, 4)
        assert seen.lines[1].endswith(f": {end}")


@simulated
async def test_a_response_without_a_handler_has_no_time_of_one() -> None:
    class Respond(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            return ListGroupsResponse(error_code=15)

    async with traced() as seen:
        seen.broker.node.dispatcher.interception.install(Respond())
        await seen.client.call(ListGroupsRequest(), 4, ListGroupsResponse)
        assert re.search(
            r" B \d+\.\d ms COORDINATOR_NOT_AVAILABLE: error_code=COORDINATOR_NOT_AVAILABLE", seen.lines[1]
        )
