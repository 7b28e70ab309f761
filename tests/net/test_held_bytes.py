"""What clients that do not go on may hold in memory, all together: the one with the most is closed."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from oncelog.broker.net.held_bytes import LOGIN_BYTES_MAX, HeldBytes
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated

__all__ = ["lines"]

SASL = {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "PLAIN"}
HALF = 400_000


def test_the_connection_with_the_most_is_closed() -> None:
    closed: list[tuple[str, str]] = []
    held = HeldBytes(100, "something")

    def close_a(why: str) -> None:
        closed.append(("a", why))

    def close_b(why: str) -> None:
        closed.append(("b", why))

    held.hold(close_a, 50)
    held.hold(close_b, 50)
    assert (held.used, closed) == (100, [])
    held.hold(close_b, 1)
    assert closed == [("b", "51 bytes of something; the limit is 100 for all connections together")]
    assert held.used == 50
    assert held.release(close_a) == 50
    assert held.release(close_b) == held.used == 0


@simulated
async def test_half_frames_before_the_log_in_have_a_bound(lines: list[str]) -> None:
    async with SimBroker(protocol="SASL_PLAINTEXT", config=SASL, users={"app": "secret"}) as broker:
        half = (500_000).to_bytes(4, "big") + b"\0\x24\0\2\0\0\0\0" + bytes(HALF)
        clients = [broker.connect() for _ in range(LOGIN_BYTES_MAX // HALF + 4)]
        for client in clients:
            await client.send_bytes(half)
        await trio.testing.wait_all_tasks_blocked()
        logins = broker.node.server.logins
        assert HALF < logins.used <= LOGIN_BYTES_MAX
        assert len(broker.server_connections()) < len(clients)
        assert "bytes of an incomplete frame before the log-in; the limit is" in " ".join(lines)
        # Who logs in is not in the way.
        other = broker.connect()
        await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
        for client in clients:
            client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert logins.used == 0


@simulated
async def test_responses_that_nobody_reads_have_a_bound(lines: list[str]) -> None:
    async with SimBroker(pipe_bytes_max=10_000) as broker:
        await create_topic(broker.connect(), "here")
        broker.node.server.unsent.limit = 300_000
        asked = DescribeConfigsRequest([DescribeConfigsResource(2, "here", None)] * 200)
        short = DescribeConfigsRequest([DescribeConfigsResource(2, "here", None)] * 20)

        async def asks(request: DescribeConfigsRequest) -> SimClient:
            client = broker.connect()
            await client.send(request, 4)
            await trio.testing.wait_all_tasks_blocked()
            return client

        first, second, third = await asks(asked), await asks(short), await asks(asked)
        with pytest.raises(ConnectionEndedError):
            await first.receive(DescribeConfigsResponse, 4)
        for client, rows in ((second, 20), (third, 200)):
            assert len((await client.receive(DescribeConfigsResponse, 4)).results) == rows
        await trio.testing.wait_all_tasks_blocked()
        assert broker.node.server.unsent.used == 0
        assert "bytes of responses that the client does not read; the limit is 300000" in " ".join(lines)
