"""`ClusterClient`: the broker of each route, and what happens if it was the wrong one or does not respond."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.routes import (
    TRANSACTION,
    AnyBroker,
    BrokerWithId,
    Controller,
    CoordinatorOf,
    LeaderOf,
    Retry,
    Route,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.find_coordinator import Coordinator as CoordinatorRow
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_network import MemoryNetwork
from tests.harness.simulation import simulated

NODES = {1: ("one", 1), 2: ("two", 2), 3: ("three", 3)}
BEAT = HeartbeatRequest("group", 1, "member")
RETRY = Retry(timeout_s=10, backoff_s=0.1, backoff_max_s=0.4)


class Cluster:
    """Three brokers that agree on leaders and coordinators. Node 3 is the controller."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.brokers = {
            node: ScriptedBroker(self.network.listen(*address)) for node, address in NODES.items()
        }
        self.leaders = {"t": [1, 2, 3], "leaderless": [-1]}
        self.coordinators = {"group": 2, "id": 3}
        self.listed = dict(NODES)
        self.beats: list[tuple[int, int]] = []
        """Heartbeats: the node, and its connection."""
        self.error_codes: dict[int, list[int]] = {node: [] for node in NODES}
        """Error codes of a node's next heartbeats; then 0."""
        for node, broker in self.brokers.items():
            broker.on(MetadataRequest, self._metadata)
            broker.on(FindCoordinatorRequest, self._find_coordinator)
            broker.on(HeartbeatRequest, self.responder(node))

    def count(self, kind: type) -> int:
        return sum(isinstance(seen, kind) for broker in self.brokers.values() for _, seen in broker.seen)

    def responder(self, node: int) -> Callable[[HeartbeatRequest, int], HeartbeatResponse]:
        def respond(request: HeartbeatRequest, version: int) -> HeartbeatResponse:
            self.beats.append((node, self.brokers[node].seen[-1][0]))
            return HeartbeatResponse(0, self.error_codes[node].pop(0) if self.error_codes[node] else 0)

        return respond

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        assert version < 4 or not request.allow_auto_topic_creation
        names = list(self.leaders) if request.topics is None else [row.name for row in request.topics]
        topics = []
        for name in names:
            rows = [
                MetadataResponsePartition(0 if node >= 0 else 5, index, node, 0, [], [])
                for index, node in enumerate(self.leaders.get(name or "", []))
            ]
            topics.append(MetadataResponseTopic(0 if rows else 3, name, partitions=rows))
        brokers = [MetadataResponseBroker(node, *address) for node, address in self.listed.items()]
        return MetadataResponse(0, brokers, "cluster", 3, topics)

    def _find_coordinator(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        [key] = request.coordinator_keys if version >= 4 else [request.key]
        assert request.key_type == (TRANSACTION if key == "id" else 0)
        node = self.coordinators.get(key)
        host, port = NODES[node] if node else ("", -1)
        if version >= 4:
            row = CoordinatorRow(key, node or -1, host, port, 0 if node else 15, None if node else "nobody")
            return FindCoordinatorResponse(coordinators=[row])
        return FindCoordinatorResponse(0, 0 if node else 15, None, node or -1, host, port)


@asynccontextmanager
async def serving(cluster: Cluster, metadata_max_age_s: float = 300) -> AsyncIterator[ClusterClient]:
    async with trio.open_nursery() as nursery:
        for broker in cluster.brokers.values():
            nursery.start_soon(broker.serve)
        with ClusterClient(
            [("gone", 9), NODES[1]], cluster.network.connect, metadata_max_age_s=metadata_max_age_s
        ) as client:
            yield client
        nursery.cancel_scope.cancel()


def on_a_cluster(test: Callable[[Cluster, ClusterClient], Awaitable[None]]) -> Callable[[], None]:
    """Make a plain pytest test of this one: simulated, with brokers that serve and a client of them."""

    async def run() -> None:
        cluster = Cluster()
        async with serving(cluster) as client:
            await test(cluster, client)

    run.__name__ = test.__name__
    return simulated(run)


async def raised(call: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await call
    return caught.value


@on_a_cluster
async def test_each_route(cluster: Cluster, client: ClusterClient) -> None:
    routes: list[tuple[Route, int]] = [
        (AnyBroker(), 1),
        (BrokerWithId(2), 2),
        (Controller(), 3),
        (LeaderOf("t", 0), 1),
        (LeaderOf("t", 1), 2),
        (LeaderOf("t", 2), 3),
        (CoordinatorOf("group"), 2),
        (CoordinatorOf("id", TRANSACTION), 3),
    ]
    for _ in range(2):  # the second time nothing is looked up
        for route, _ in routes:
            assert await client.call(BEAT, route) == HeartbeatResponse()
    nodes = [node for node, _ in cluster.beats]
    assert nodes == 2 * [node for _, node in routes]
    assert cluster.count(MetadataRequest) == 2  # the brokers; the topic
    assert cluster.count(FindCoordinatorRequest) == 2
    # a coordinator has a connection of its own; everything else of a node goes over one
    assert cluster.network.connected == [("gone", 9), NODES[1], NODES[2], NODES[3], NODES[2], NODES[3]]
    assert {connection for node, connection in cluster.beats if node == 2} == {0, 1}


@on_a_cluster
async def test_many_tasks_share_a_connection(cluster: Cluster, client: ClusterClient) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.call, BEAT, BrokerWithId(2))
    assert cluster.network.connected.count(NODES[2]) == 1
    assert cluster.beats == [(2, 0)] * 20


@on_a_cluster
async def test_an_error_is_not_raised_and_nothing_is_sent_twice(
    cluster: Cluster, client: ClusterClient
) -> None:
    cluster.error_codes[2] = [16, 27]
    for code in (16, 27, 0):
        assert await client.call(BEAT, CoordinatorOf("group")) == HeartbeatResponse(0, code)
    assert len(cluster.beats) == 3


@on_a_cluster
async def test_a_retriable_error_makes_the_route_looked_up_anew(
    cluster: Cluster, client: ClusterClient
) -> None:
    for route, old, new in (
        (LeaderOf("t", 1), 2, 3),
        (CoordinatorOf("group"), 2, 1),
    ):
        await client.call(BEAT, route)
        cluster.leaders["t"][1] = cluster.coordinators["group"] = new
        await client.call(BEAT, route)
        assert cluster.beats[-1][0] == old  # nothing told it so far
        cluster.error_codes[old] = [16]
        await client.call(BEAT, route)
        await client.call(BEAT, route)
        assert cluster.beats[-1][0] == new
        cluster.leaders["t"][1] = cluster.coordinators["group"] = 2


@on_a_cluster
async def test_retries(cluster: Cluster, client: ClusterClient) -> None:
    cluster.error_codes[2] = [16, 14, 15, 14, 14]
    start = trio.current_time()
    assert await client.call(BEAT, CoordinatorOf("group"), retry=RETRY) == HeartbeatResponse()
    assert len(cluster.beats) == 6
    assert trio.current_time() - start == pytest.approx(0.1 + 0.2 + 0.4 + 0.4 + 0.4)
    assert cluster.count(FindCoordinatorRequest) == 6


@on_a_cluster
async def test_no_retry_of_errors_that_are_not_retriable(cluster: Cluster, client: ClusterClient) -> None:
    cluster.error_codes[1] = [25, 0]
    assert await client.call(BEAT, retry=RETRY) == HeartbeatResponse(0, 25)
    assert len(cluster.beats) == 1
    error = await raised(client.call(BEAT, BrokerWithId(7), retry=RETRY))
    assert (error.code, error.message) == (ErrorCode.BROKER_NOT_AVAILABLE, "Metadata does not list node 7")


@on_a_cluster
async def test_retries_end_at_the_deadline(cluster: Cluster, client: ClusterClient) -> None:
    cluster.error_codes[1] = [14] * 1000
    start = trio.current_time()
    assert await client.call(BEAT, retry=RETRY) == HeartbeatResponse(0, 14)
    assert 9.5 < trio.current_time() - start <= 10
    assert (await raised(client.call(BEAT, LeaderOf("none", 0), retry=RETRY))).code == ErrorCode(3)
    assert 19 < trio.current_time() - start <= 20


@on_a_cluster
async def test_partitions_without_a_leader(cluster: Cluster, client: ClusterClient) -> None:
    for route, code in (
        (LeaderOf("t", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (LeaderOf("none", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (LeaderOf("leaderless", 0), ErrorCode.LEADER_NOT_AVAILABLE),
    ):
        assert (await raised(client.call(BEAT, route))).code == code
    del cluster.listed[2]
    assert (await raised(client.call(BEAT, LeaderOf("t", 1)))).code == ErrorCode.LEADER_NOT_AVAILABLE
    error = await raised(client.call(BEAT, CoordinatorOf("stranger")))
    assert (error.code, error.message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody")


@on_a_cluster
async def test_a_leader_that_is_elected_meanwhile(cluster: Cluster, client: ClusterClient) -> None:
    async with trio.open_nursery() as nursery:

        async def elect() -> None:
            await trio.sleep(2)
            cluster.leaders["leaderless"] = [2]

        nursery.start_soon(elect)
        await client.call(BEAT, LeaderOf("leaderless", 0), retry=RETRY)
    assert cluster.beats == [(2, 0)]


@on_a_cluster
async def test_a_lost_connection(cluster: Cluster, client: ClusterClient) -> None:
    def lose(request: HeartbeatRequest, version: int) -> None:
        cluster.brokers[2].on(HeartbeatRequest, respond)
        cluster.brokers[2].peers[-1].transport.break_off()

    respond = cluster.responder(2)
    cluster.brokers[2].on(HeartbeatRequest, lose)
    assert (await raised(client.call(BEAT, BrokerWithId(2)))).code == ErrorCode.NETWORK_EXCEPTION
    await client.call(BEAT, BrokerWithId(2))
    cluster.brokers[2].on(HeartbeatRequest, lose)
    await client.call(BEAT, BrokerWithId(2), retry=RETRY)
    assert len(cluster.brokers[2].peers) == 3
    assert cluster.beats == [(2, 1), (2, 2)]


@pytest.mark.parametrize("how", ["close", "break_off"])
def test_a_connection_that_was_lost_while_nothing_happened(how: str) -> None:
    @on_a_cluster
    async def test(cluster: Cluster, client: ClusterClient) -> None:
        for _ in range(3):
            await client.call(BEAT, BrokerWithId(2))
            getattr(cluster.brokers[2].peers[-1].transport, how)()
        assert cluster.beats == [(2, 0), (2, 1), (2, 2)]

    test()


@on_a_cluster
async def test_forgotten_brokers_are_looked_up_again(cluster: Cluster, client: ClusterClient) -> None:
    await client.call(BEAT, LeaderOf("t", 1))
    client.forget(BrokerWithId(2))
    await client.call(BEAT, LeaderOf("t", 1))
    assert cluster.beats == [(2, 0)] * 2


@on_a_cluster
async def test_a_coordinator_has_a_connection_of_its_own(cluster: Cluster, client: ClusterClient) -> None:
    await client.call(BEAT, CoordinatorOf("group"))
    assert cluster.network.connected[-2:] == [NODES[1], NODES[2]]
    cluster.brokers[1].peers[0].transport.break_off()
    await client.call(BEAT)
    assert cluster.beats == [(2, 0), (1, 1)]


@on_a_cluster
async def test_a_broker_that_moved_is_found_by_its_id(cluster: Cluster, client: ClusterClient) -> None:
    await client.call(BEAT, BrokerWithId(2))
    cluster.listed[2] = NODES[3]
    cluster.brokers[2].listener.close()
    cluster.brokers[2].peers[0].transport.close()
    assert (await raised(client.call(BEAT, BrokerWithId(2)))).code == ErrorCode.NETWORK_EXCEPTION
    await client.call(BEAT, BrokerWithId(2))
    assert cluster.beats == [(2, 0), (3, 0)]


@on_a_cluster
async def test_time_outs(cluster: Cluster, client: ClusterClient) -> None:
    cluster.brokers[2].on(HeartbeatRequest, lambda request, version: None)
    start = trio.current_time()
    assert (await raised(client.call(BEAT, BrokerWithId(2)))).code == ErrorCode.REQUEST_TIMED_OUT
    assert trio.current_time() - start == pytest.approx(30)
    error = await raised(client.call(BEAT, BrokerWithId(2), timeout_s=1, retry=Retry(5)))
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    assert trio.current_time() - start == pytest.approx(30 + 1 + 0.1 + 1 + 0.2 + 1 + 0.4 + 1)
    assert len(cluster.brokers[2].peers) == 5


@simulated
async def test_metadata_is_renewed_when_it_is_old() -> None:
    cluster = Cluster()
    async with serving(cluster, metadata_max_age_s=60) as client:
        for _ in range(3):
            await client.call(BEAT, LeaderOf("t", 0))
            await trio.sleep(59)
        assert cluster.count(MetadataRequest) == 2


@on_a_cluster
async def test_cached_metadata(cluster: Cluster, client: ClusterClient) -> None:
    response = await client.refresh_metadata()
    assert [topic.name for topic in response.topics] == ["t", "leaderless"]
    assert (client.metadata.cluster_id, client.metadata.controller_id) == ("cluster", 3)
    assert client.metadata.brokers == NODES
    found = client.metadata.topic("t", trio.current_time())
    assert found is not None
    assert [row.leader_id for row in found.partitions] == [1, 2, 3]
    assert client.metadata.topic("other", trio.current_time()) is None


@simulated
async def test_old_brokers() -> None:
    cluster = Cluster()
    for broker in cluster.brokers.values():
        broker.versions = {3: (0, 3), 10: (0, 3)}
    async with serving(cluster) as client:
        await client.call(BEAT, LeaderOf("t", 1))
        await client.call(BEAT, CoordinatorOf("id", TRANSACTION))
        assert (
            await raised(client.call(BEAT, CoordinatorOf("stranger")))
        ).code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [node for node, _ in cluster.beats] == [2, 3]


@on_a_cluster
async def test_several_requests_in_flight(cluster: Cluster, client: ClusterClient) -> None:
    connection = await client.connection(LeaderOf("t", 1))
    sent = [await connection.send(BEAT) for _ in range(3)]
    assert [await one.wait_response() for one in sent] == [HeartbeatResponse()] * 3
    assert cluster.beats == [(2, 0)] * 3


@on_a_cluster
async def test_no_broker_is_reachable(cluster: Cluster, client: ClusterClient) -> None:
    with ClusterClient([("gone", 9), ("away", 9)], cluster.network.connect) as lost:
        error = await raised(lost.call(BEAT))
        assert (error.code, error.message) == (
            ErrorCode.NETWORK_EXCEPTION,
            "away:9: nobody listens on away:9",
        )
    with pytest.raises(ValueError, match="bootstrap"):
        ClusterClient([], cluster.network.connect)


@on_a_cluster
async def test_a_closed_client(cluster: Cluster, client: ClusterClient) -> None:
    cluster.brokers[1].on(HeartbeatRequest, lambda request, version: None)
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.testing.wait_all_tasks_blocked()
            client.close()

        nursery.start_soon(close)
        assert (await raised(client.call(BEAT))).code == ErrorCode.NETWORK_EXCEPTION
    for route in (AnyBroker(), BrokerWithId(1), CoordinatorOf("group")):
        assert "closed" in str(await raised(client.call(BEAT, route)))


@on_a_cluster
async def test_a_client_closed_while_it_connects(cluster: Cluster, client: ClusterClient) -> None:
    with ClusterClient([NODES[1]], cluster.network.connect) as closing:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                assert "closed on this side" in str(await raised(closing.call(BEAT)))

            nursery.start_soon(call)
            while not cluster.brokers[1].peers:
                await trio.lowlevel.checkpoint()
            closing.close()
    assert cluster.beats == []
