"""An upstream that is none, or is lost: one line says so, and no client is left hanging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.logging.logs import LogOutput, logging_to
from oncelog.broker.proxy.upstream import UpstreamError
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.harness.log_lines import Lines
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.sim_network import MemoryNetwork, MemoryTransport
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

KAFKA = ("kafka", 1000)


def single(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        [group] = group.exceptions
    return group


async def refusal(network: MemoryNetwork, *upstream: tuple[str, int]) -> str:
    """Start a proxy that must not start; return why."""
    try:
        async with SimProxy(network.connect, list(upstream)):
            raise AssertionError("it has started")
    except BaseExceptionGroup as group:
        error = single(group)
        assert isinstance(error, UpstreamError), error
        return str(error)


async def answer(listener: Any, data: bytes) -> None:
    """Send these bytes on each connection, and wait."""
    while True:
        transport: MemoryTransport | None = listener.accept()
        if transport is None:
            await listener.wait_for_connection()
        else:
            transport.send(data)


@simulated
async def test_nobody_is_there() -> None:
    why = await refusal(MemoryNetwork(), KAFKA, ("other", 1))
    assert why == (
        "the upstream cannot be used: kafka:1000: nobody listens on kafka:1000; other:1: nobody listens on other:1"
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no response to ApiVersions within 10 s"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "^the upstream cannot be used: kafka:1000: a frame of 1213486160 bytes (the text 'HTTP'); the limit is "
            "1073741824: is it a Kafka broker?",
        ),
        (b"\0\0\0\x05\0\0\0\x09\0", "correlation id 9, which is not the next: is it a Kafka broker?"),
    ],
)
@simulated
async def test_what_is_there_is_no_kafka(data: bytes, why: str) -> None:
    network = MemoryNetwork()
    listener = network.listen(*KAFKA)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, listener, data)
        assert why in "^" + await refusal(network, KAFKA)
        nursery.cancel_scope.cancel()


async def with_upstream(
    metadata: Callable[[], MetadataResponse], use: Callable[[SimProxy, MemoryNetwork, ScriptedBroker], Any]
) -> Lines:
    """Run ``use`` with a proxy before a scripted node; return the log's lines."""
    network = MemoryNetwork()
    node = ScriptedBroker(network.listen(*KAFKA))
    node.on(MetadataRequest, lambda request, version: metadata())
    node.on(ListGroupsRequest, lambda request, version: ListGroupsResponse())
    lines = Lines()
    with logging_to(LogOutput(lines, SystemClock(), level="info")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve)
            async with SimProxy(network.connect, [KAFKA]) as proxy:
                await use(proxy, network, node)
            nursery.cancel_scope.cancel()
    return lines


@simulated
async def test_another_cluster_than_before() -> None:
    clusters = iter(("one", "one", "two"))

    async def use(proxy: SimProxy, network: MemoryNetwork, node: ScriptedBroker) -> None:
        client = proxy.connect()
        await client.call(MetadataRequest([]), 9, MetadataResponse)
        with pytest.raises(ConnectionEndedError):
            await client.call(MetadataRequest([]), 9, MetadataResponse)

    lines = await with_upstream(
        lambda: MetadataResponse(brokers=[MetadataResponseBroker(1, *KAFKA)], cluster_id=next(clusters)), use
    )
    assert [line for line in lines.lines if "the upstream is cluster two now; it was one" in line]


def one_node() -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(1, *KAFKA)], cluster_id="one")


@simulated
async def test_a_node_that_is_down_closes_the_connection() -> None:
    async def use(proxy: SimProxy, network: MemoryNetwork, node: ScriptedBroker) -> None:
        client = proxy.connect(PORT + 1)
        await client.call(ListGroupsRequest(), 3, ListGroupsResponse)
        node.peers[-1].transport.break_off()
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
        node.listener.close()
        again = proxy.connect(PORT + 1)
        # Whoever listened is gone: nobody accepts.
        network._listeners.clear()
        with pytest.raises(ConnectionEndedError):
            await again.call(ListGroupsRequest(), 3, ListGroupsResponse)
        await trio.testing.wait_all_tasks_blocked()
        assert proxy.connections == []

    lines = await with_upstream(one_node, use)
    [line] = (line for line in lines.lines if "cannot be reached" in line)
    assert (
        "upstream node 1 cannot be reached: kafka:1000: nobody listens on kafka:1000 (its cluster advertises"
        in line
    )


@simulated
async def test_a_node_that_is_advertised_elsewhere_is_named_at_the_start() -> None:
    async def use(proxy: SimProxy, network: MemoryNetwork, node: ScriptedBroker) -> None:
        pass

    nodes = [MetadataResponseBroker(2, "inside", 9092), MetadataResponseBroker(1, *KAFKA)]
    lines = await with_upstream(lambda: MetadataResponse(brokers=nodes, cluster_id="one"), use)
    [line] = (line for line in lines.lines if "cannot be reached" in line)
    assert "advertised.listeners" in line
    assert "node=2 address=inside:9092 reason='nobody listens on inside:9092'" in line


@simulated
async def test_upstream_that_never_accepts_is_given_up() -> None:
    network = MemoryNetwork()
    node = ScriptedBroker(network.listen(*KAFKA))
    node.on(MetadataRequest, lambda request, version: one_node())
    connected: list[int] = []

    async def connect(host: str, port: int) -> MemoryTransport:
        if connected:
            await trio.sleep_forever()
        connected.append(port)
        return await network.connect(host, port)

    lines = Lines()
    with logging_to(LogOutput(lines, SystemClock(), level="info")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve)
            async with SimProxy(connect, [KAFKA]) as proxy:
                client = proxy.connect(PORT + 1)
                began = trio.current_time()
                with pytest.raises(ConnectionEndedError):
                    await client.call(ListGroupsRequest(), 3, ListGroupsResponse)
                assert trio.current_time() - began == 10
            nursery.cancel_scope.cancel()
    assert [line for line in lines.lines if "not connected within 10 s" in line]


@simulated
async def test_a_node_that_advertises_the_proxy_is_refused() -> None:
    network = MemoryNetwork()
    node = ScriptedBroker(network.listen(*KAFKA))
    node.on(
        MetadataRequest,
        lambda request, version: MetadataResponse(brokers=[MetadataResponseBroker(1, HOST, PORT)]),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve)
        assert f"its node 1 advertises {HOST}:{PORT}" in await refusal(network, KAFKA)
        nursery.cancel_scope.cancel()


@simulated
async def test_a_response_to_no_request_ends_the_connection() -> None:
    async def use(proxy: SimProxy, network: MemoryNetwork, node: ScriptedBroker) -> None:
        client = proxy.connect(PORT + 1)
        await client.call(ListGroupsRequest(), 3, ListGroupsResponse)
        await node.peers[-1].send_bytes(b"\0\0\0\x05\0\0\0\x09\0")
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()

    lines = await with_upstream(one_node, use)
    assert [line for line in lines.lines if "has sent a response to no request" in line]


@simulated
async def test_nodes_move_and_come() -> None:
    nodes = [MetadataResponseBroker(1, *KAFKA)]

    async def use(proxy: SimProxy, network: MemoryNetwork, node: ScriptedBroker) -> None:
        moved = ScriptedBroker(network.listen("moved", 2000))
        moved.on(ListGroupsRequest, lambda request, version: ListGroupsResponse(error_code=15))
        client = proxy.connect()
        nodes[:] = [MetadataResponseBroker(7, *KAFKA), MetadataResponseBroker(1, "moved", 2000)]
        told = await client.call(MetadataRequest([]), 9, MetadataResponse)
        assert [(row.node_id, row.host, row.port) for row in told.brokers] == [
            (7, HOST, PORT + 2),
            (1, HOST, PORT + 1),
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(moved.serve)
            response = await proxy.connect(PORT + 1).call(ListGroupsRequest(), 3, ListGroupsResponse)
            assert response.error_code == 15
            response = await proxy.connect(PORT + 2).call(ListGroupsRequest(), 3, ListGroupsResponse)
            assert response.error_code == 0
            nursery.cancel_scope.cancel()

    await with_upstream(lambda: MetadataResponse(brokers=list(nodes), cluster_id="one"), use)
