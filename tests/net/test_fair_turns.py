"""Who has one small request waits for a round of the others' turns, which is not longer where there are many."""

from __future__ import annotations

import trio
import trio.testing

from oncelog.broker.net.connection import FAIR_REQUESTS
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.harness.noting_authorizer import NotingAuthorizer
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

BUSY = 60


@simulated
async def test_many_connections_with_much_to_do() -> None:
    async with SimBroker() as broker:
        await create_topic(broker.connect(), "busy")
        busy, late = [broker.connect() for _ in range(BUSY)], broker.connect()
        for client in (*busy, late):  # the codecs are made
            request = DescribeConfigsRequest([DescribeConfigsResource(2, "busy")])
            await client.call(request, 4, DescribeConfigsResponse)
        notes = NotingAuthorizer()
        broker.authorize_with(notes)
        of_busy, of_late = (
            encode_request(DescribeConfigsRequest([DescribeConfigsResource(2, name)]), 4, 7)
            for name in ("busy", "late")
        )
        for client in busy:
            await client.send_bytes(of_busy * 2 * FAIR_REQUESTS)
        while not notes.asked:
            await trio.lowlevel.checkpoint()
        before = len(notes.asked)
        await late.send_bytes(of_late)
        await late.receive(DescribeConfigsResponse, 4)
        assert notes.asked.index("late") - before < 8 * FAIR_REQUESTS
        assert notes.asked.count("busy") < BUSY * 2 * FAIR_REQUESTS
