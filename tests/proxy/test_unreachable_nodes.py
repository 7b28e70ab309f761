"""Nodes that cannot be reached where the cluster says that they are: the start tries each, and the log says which."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from confluent_kafka import KafkaError, Producer

import oncelog
from oncelog.broker.logging.logs import LogOutput, logging_to
from oncelog.broker.proxy.passed_proxies import LOOP, LOOP_ERROR
from oncelog.broker.proxy.proxy import NODES_TRIED_MAX
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.common.process import refusing_address
from tests.harness.log_lines import Lines
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.sim_network import MemoryNetwork, MemoryTransport
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import PORT, SimProxy
from tests.proxy.test_bad_upstream import KAFKA, refusal


def unreachable(node: int, host: str) -> str:
    return (
        f"upstream node {node} cannot be reached at {host}:1000, which the cluster advertises (advertised.listeners): "
        f"nobody listens on {host}:1000; that address must lead to the node from here"
    )


class Cluster:
    """Its nodes 1, 2, ... are advertised at these hosts; of them, and of others, `nodes` has those that listen."""

    def __init__(self, advertised: Iterable[str], listening: Iterable[str]) -> None:
        self.network = MemoryNetwork()
        self.lines = Lines()
        rows = [MetadataResponseBroker(number, host, KAFKA[1]) for number, host in enumerate(advertised, 1)]
        self.nodes = {host: ScriptedBroker(self.network.listen(host, KAFKA[1])) for host in listening}
        for node in self.nodes.values():
            node.on(
                MetadataRequest, lambda request, version: MetadataResponse(brokers=rows, cluster_id="one")
            )
            node.on(ListGroupsRequest, lambda request, version: ListGroupsResponse())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        with logging_to(LogOutput(self.lines, SystemClock(), level="info")):
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.serve)
                yield
                nursery.cancel_scope.cancel()

    @property
    def warnings(self) -> list[str]:
        return [line.rstrip("\n").partition(": ")[2] for line in self.lines.lines if " WARNING " in line]


@simulated
async def test_one_of_three() -> None:
    cluster = Cluster(["kafka", "lost", "other"], listening=["kafka", "other"])
    async with cluster.serving(), SimProxy(cluster.network.connect, [KAFKA]) as proxy:
        assert cluster.warnings == [f"{unreachable(2, 'lost')} node=2"]
        assert [len(node.peers) for node in cluster.nodes.values()] == [
            1,
            1,
        ]  # the one that was asked is not tried
        for node_id in (1, 3):
            await proxy.connect(PORT + node_id).call(ListGroupsRequest(), 3, ListGroupsResponse)
        with pytest.raises(ConnectionEndedError):
            await proxy.connect(PORT + 2).call(ListGroupsRequest(), 3, ListGroupsResponse)
        [_, closed] = cluster.warnings
        assert f"reason='{unreachable(2, 'lost')}'" in closed


@simulated
async def test_none_can_be_reached() -> None:
    """The address that was given leads to a node which is advertised elsewhere."""
    for hosts, more in ((["lost"], ""), (["lost", "gone", "away"], "; nor can nodes 2, 3")):
        cluster = Cluster(hosts, listening=["kafka"])
        async with cluster.serving():
            why = await refusal(cluster.network, KAFKA)
        assert why == f"the upstream cannot be used: {unreachable(1, 'lost')}{more}"
        assert len(cluster.warnings) == len(hosts)


@pytest.mark.parametrize(("silent", "seconds"), [(NODES_TRIED_MAX, 10), (2 * NODES_TRIED_MAX, 20)])
@simulated
async def test_they_are_tried_side_by_side(silent: int, seconds: int) -> None:
    cluster = Cluster(["kafka", *["silent"] * silent], listening=["kafka"])

    async def connect(host: str, port: int) -> MemoryTransport:
        if host == "silent":
            await trio.sleep_forever()
        return await cluster.network.connect(host, port)

    async with cluster.serving():
        began = trio.current_time()
        async with SimProxy(connect, [KAFKA]):
            assert trio.current_time() - began == seconds
    assert len(cluster.warnings) == silent
    assert all(
        "silent:1000, which" in line and "not connected within 10 s" in line for line in cluster.warnings
    )


@simulated
async def test_a_node_whose_address_leads_into_a_loop() -> None:
    cluster = Cluster(["kafka", "other"], listening=["kafka", "other"])
    cluster.nodes["other"].on(ApiVersionsRequest, lambda request, version: ApiVersionsResponse(LOOP_ERROR))
    async with cluster.serving(), SimProxy(cluster.network.connect, [KAFKA]):
        pass
    assert cluster.warnings == [f"{LOOP} node=2"]


@pytest.fixture
def cluster() -> Iterator[oncelog.Broker]:
    """Two nodes; the second one is advertised at an address where nobody listens."""
    with refusing_address() as address:
        nodes = {1: {}, 2: {"advertised.listeners": f"PLAINTEXT://{address}"}}
        with oncelog.Broker(nodes=nodes, topics={"orders": 2}) as broker:
            yield broker


def test_a_client_of_a_cluster_of_which_one_node_cannot_be_reached(cluster: oncelog.Broker) -> None:
    address = cluster.nodes[2].info.address
    said = f"node 2 cannot be reached at {address}, which the cluster advertises (advertised.listeners): "
    errors: list[KafkaError] = []
    leaders = {row.leader: row.partition for row in cluster.topic("orders").partitions}
    with oncelog.Proxy(cluster.nodes[1].info.address) as kafka:
        assert [line for line in kafka.log_lines if f"upstream {said}Connection refused" in line]
        settings = {"message.timeout.ms": 60_000, "log_level": 0, "error_cb": errors.append}
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
        producer.produce("orders", b"coffee", partition=leaders[1])
        assert producer.flush(60) == 0
        producer.produce("orders", b"tea", partition=leaders[2])
        while not errors:
            producer.poll(60)
        assert [line for line in kafka.log_lines if "connection closed" in line and said in line]
        assert [record.value for record in kafka.topic("orders").records(partition=leaders[1])] == [b"coffee"]
        with pytest.raises(oncelog.KafkaError, match=re.escape(said)):
            kafka.topic("orders").records(partition=leaders[2])
        producer.purge()
