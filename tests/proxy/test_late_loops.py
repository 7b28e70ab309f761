"""Loops of proxies that begin while these run, and whose clients do not say what they have passed: those without
ApiVersions 3, and those whose log-in ends at a proxy.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.client.connection import SOFTWARE_NAME
from oncelog.broker.client.opening import open_connection
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.logging.logs import LogOutput, logging_to
from oncelog.broker.proxy.passed_proxies import ID_BYTES, LOOP, LOOP_ERROR, PASSED_MAX, PassedProxies
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.wire.schema import Message
from tests.client.security.test_login import password
from tests.harness.log_lines import Lines
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import PORT, SimProxy
from tests.proxy.test_bad_upstream import KAFKA, single
from tests.proxy.test_logins import MECHANISMS, settings
from tests.proxy.test_loops import Ring, chain

USERS = {"app": "app-secret"}


class RingThatPassesLogins(Ring):
    def proxy(self, upstream: str) -> SimProxy:
        return self.new_proxy(upstream, logins=UpstreamLogins({}, pass_through=True))


class RingWithLogins(Ring):
    """Each proxy ends log-ins, and logs in at the next one; the last, at a broker."""

    def __init__(self, broker: SimBroker) -> None:
        super().__init__()
        self._broker = broker

    def proxy(self, upstream: str) -> SimProxy:
        return self.new_proxy(
            upstream,
            MECHANISMS,
            listeners=("SASL_PLAINTEXT",),
            users=USERS,
            logins=UpstreamLogins(settings()),
        )

    async def outside(self, host: str, port: int) -> Any:
        return await self._broker.open_transport(*self._broker.listener.address)


async def says(client: SimClient, request: Message, version: int, response: type[Message]) -> str:
    """What an old client is told: an error, or "closed"."""
    try:
        got: Any = await client.call(request, version, response)
    except ConnectionEndedError:
        return "closed"
    return str(getattr(got, "error_code", 0))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("request_", "version", "response", "told"),
    [
        (ApiVersionsRequest(), 2, ApiVersionsResponse, str(int(LOOP_ERROR))),
        (MetadataRequest([]), 4, MetadataResponse, "closed"),
        (SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse, "closed"),
    ],
)
def test_clients_that_mark_nothing(
    count: int, request_: Message, version: int, response: type[Message], told: str
) -> None:
    async def main() -> None:
        ring = RingThatPassesLogins()
        lines = Lines()
        with logging_to(LogOutput(lines, SystemClock(), level="info")):
            async with trio.open_nursery() as nursery, AsyncExitStack() as running:
                nursery.start_soon(ring.node.serve)
                proxies = await chain(ring, count, running)
                client = proxies[0].connect()
                assert await says(client, MetadataRequest([]), 4, MetadataResponse) == "0"
                ring.hosts[KAFKA[0]] = proxies[0]
                before = ring.connections
                for _ in range(2):
                    client = proxies[0].connect()
                    assert await says(client, request_, version, response) == told
                    client.transport.close()
                    await trio.testing.wait_all_tasks_blocked()
                assert ring.connections - before == 2 * count  # each goes round once
                assert [len(one.connections) for one in proxies] == [1] * count
                nursery.cancel_scope.cancel()
        assert [line for line in lines.lines if LOOP in line]

    simulated(main)()


class SeesAll(Interceptor):
    """With it, every request is decoded."""


@simulated
async def test_what_is_asked_after_the_error_goes_round_no_more() -> None:
    """Also where an interceptor sees the requests."""
    for interceptors in ([], [SeesAll()]):
        ring = Ring()
        async with trio.open_nursery() as nursery, AsyncExitStack() as running:
            nursery.start_soon(ring.node.serve)
            proxies = await chain(ring, 2, running)
            for proxy in proxies:
                for interceptor in interceptors:
                    proxy.proxy.dispatcher.interception.install(interceptor)
            ring.hosts[KAFKA[0]] = proxies[0]
            for version, connections in ((2, 4), (4, 2)):  # those of the first round are closed, or in use
                before = ring.connections
                client = proxies[0].connect()
                response = await client.call(ApiVersionsRequest("app", "1"), version, ApiVersionsResponse)
                assert response.error_code == LOOP_ERROR
                assert await says(client, MetadataRequest([]), 4, MetadataResponse) == "closed"
                assert ring.connections - before == connections
                await trio.testing.wait_all_tasks_blocked()
            assert [one.connections for one in proxies] == [[], []]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("interceptors", [(), (SeesAll(),)])
@pytest.mark.parametrize(
    ("first", "version", "response", "asked"),
    [
        (ApiVersionsRequest("app", "1"), 4, ApiVersionsResponse, ["app"]),
        # A Kafka that waits for a log-in closes a connection on which a second one comes.
        (ApiVersionsRequest(), 0, ApiVersionsResponse, [SOFTWARE_NAME]),
        (MetadataRequest([]), 4, MetadataResponse, [SOFTWARE_NAME]),
    ],
)
def test_the_proxy_asks_where_the_client_does_not(
    first: Message,
    version: int,
    response: type[Message],
    asked: list[str],
    interceptors: tuple[Interceptor, ...],
) -> None:
    async def main() -> None:
        ring = Ring()
        seen: list[str] = []

        def respond(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
            seen.append(request.client_software_name)
            return ApiVersionsResponse(0, [ApiVersion(18, 0, 4), ApiVersion(3, 0, 12)])

        ring.node.on(ApiVersionsRequest, respond)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring.node.serve)
            async with ring.proxy(KAFKA[0]) as proxy:
                seen.clear()
                for interceptor in interceptors:
                    proxy.proxy.dispatcher.interception.install(interceptor)
                client = proxy.connect()
                assert await says(client, first, version, response) == "0"
                assert await says(client, MetadataRequest([]), 4, MetadataResponse) == "0"
                assert seen == asked
            nursery.cancel_scope.cancel()

    simulated(main)()


@simulated
async def test_a_loop_is_not_tried_by_every_address() -> None:
    ring = Ring()
    async with trio.open_nursery() as nursery, AsyncExitStack() as running:
        nursery.start_soon(ring.node.serve)
        one = await running.enter_async_context(ring.new_proxy(KAFKA[0], addresses=[KAFKA] * 6))
        ring.hosts["one"] = one
        ring.hosts[KAFKA[0]] = await running.enter_async_context(
            ring.new_proxy("", addresses=[("one", 1)] * 6)
        )
        before = ring.connections
        assert await says(one.connect(), MetadataRequest([]), 4, MetadataResponse) == "closed"
        assert ring.connections - before == 2
        nursery.cancel_scope.cancel()


def test_a_chain_has_an_end() -> None:
    others = [bytes([number + 1]) * ID_BYTES for number in range(PASSED_MAX + 1)]
    proxy = PassedProxies(b"\0" * ID_BYTES)
    assert not proxy.is_loop(b"".join(others[:PASSED_MAX]))
    assert proxy.is_loop(b"".join(others))


@pytest.mark.parametrize("count", [2, 3])
def test_logins_that_end_at_each_proxy(count: int) -> None:
    async def main() -> None:
        lines = Lines()
        with logging_to(LogOutput(lines, SystemClock(), level="info")):
            async with (
                SimBroker(config=MECHANISMS, protocol="SASL_PLAINTEXT", users=USERS) as broker,
                AsyncExitStack() as running,
            ):
                ring = RingWithLogins(broker)
                proxies = await chain(ring, count, running)
                security = password("SCRAM-SHA-256")
                connection = await through(proxies[0], security)
                assert (await connection.call(MetadataRequest([]))).error_code == 0
                ring.hosts[KAFKA[0]] = proxies[0]
                before = ring.connections
                for _ in range(2):
                    connection = await through(proxies[0], security)
                    with pytest.raises(KafkaError):
                        await connection.call(MetadataRequest([]))
                    await trio.testing.wait_all_tasks_blocked()
                assert ring.connections - before == 2 * count
                assert [len(one.connections) for one in proxies] == [1] * count
        assert [line for line in lines.lines if LOOP in line]

    simulated(main)()


@simulated
async def test_the_start_that_closes_a_loop_of_logins_fails() -> None:
    async with (
        SimBroker(config=MECHANISMS, protocol="SASL_PLAINTEXT", users=USERS) as broker,
        AsyncExitStack() as running,
    ):
        ring = RingWithLogins(broker)
        await chain(ring, 2, running)
        closing = ring.hosts[KAFKA[0]] = ring.proxy("proxy2")
        with pytest.raises(BaseExceptionGroup) as caught:
            async with closing:
                raise AssertionError("it has started")
        assert str(single(caught.value)) == f"the upstream cannot be used: proxy2:1000: {LOOP}"


@simulated
async def test_one_proxy_of_a_loop_ends_logins() -> None:
    """The ids with which a client has come go on with the log-in that the proxy makes for it."""
    async with (
        SimBroker(config=MECHANISMS, protocol="SASL_PLAINTEXT", users=USERS) as broker,
        AsyncExitStack() as running,
    ):
        ring = RingWithLogins(broker)
        [ending] = await chain(ring, 1, running)
        passing = await running.enter_async_context(
            ring.new_proxy("proxy1", logins=UpstreamLogins({}, pass_through=True))
        )
        ring.hosts[KAFKA[0]] = passing
        before = ring.connections
        connection = await through(passing, password("SCRAM-SHA-256"))
        with pytest.raises(KafkaError):
            await connection.call(MetadataRequest([]))
        await trio.testing.wait_all_tasks_blocked()
        assert ring.connections - before == 2
        assert [one.connections for one in (ending, passing)] == [[], []]


async def through(proxy: SimProxy, security: ClientSecurity) -> Any:
    return await open_connection(proxy.open_transport, proxy.host, PORT, security=security)
