"""A proxy before our broker: addresses, requests that pass, interceptors, and what clients are told."""

from __future__ import annotations

from typing import Any

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch
from tests.harness.requests import PRODUCE_VERSION, bytes_of, create_topic, fetch, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

BROKER = [("simulated", 9092)]
NODE_PORT = PORT + 1


class Seen(Interceptor):
    """Notes what it is shown; `on_request` may be replaced."""

    def __init__(self, *apis: str, only_reads: bool = False) -> None:
        self.apis = frozenset(apis) or None
        self.only_reads = only_reads
        self.requests: list[str] = []
        self.responses: list[Any] = []
        self.done: list[str] = []

    async def on_request(self, context: RequestContext) -> Any:
        self.requests.append(context.api.row.name)

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        self.responses.append(response)
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self.done.append(context.api.row.name)


@simulated
async def test_clients_are_told_of_the_proxys_ports() -> None:
    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        metadata = await client.call(MetadataRequest([]), 12, MetadataResponse)
        assert [(row.node_id, row.host, row.port) for row in metadata.brokers] == [(1, HOST, NODE_PORT)]
        found = await client.call(FindCoordinatorRequest(coordinator_keys=["a"]), 4, FindCoordinatorResponse)
        assert (found.coordinators[0].host, found.coordinators[0].port) == (HOST, NODE_PORT)
        cluster = await client.call(DescribeClusterRequest(), 0, DescribeClusterResponse)
        assert [(row.host, row.port) for row in cluster.brokers] == [(HOST, NODE_PORT)]


@simulated
async def test_records_pass_both_ways_through_a_nodes_port() -> None:
    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect(NODE_PORT)
        await create_topic(client, "t")
        assert (await produce(client, "t")).base_offset == 0
        assert (await produce(client, "t")).base_offset == 1
        direct, through = await fetch(broker.connect(), "t"), await fetch(client, "t")
        assert bytes_of(through.records) == bytes_of(direct.records)


@simulated
async def test_api_versions_are_those_of_both_sides() -> None:
    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        response = await proxy.connect().call(ApiVersionsRequest("a", "1"), 4, ApiVersionsResponse)
        direct = await broker.connect().call(ApiVersionsRequest("a", "1"), 4, ApiVersionsResponse)
        assert response == direct
        client = proxy.connect()
        await client.send_frame(b"\0\x12\0\x63\0\0\0\x07\xff\xff")  # version 99
        payload = await client.receive_frame()
        told = ApiVersionsResponse.decode(payload, 0, 4)
        assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [row.api_key for row in told.api_keys] == [18]


@simulated
async def test_an_interceptor_sees_the_apis_that_it_wants() -> None:
    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        await create_topic(client, "t")
        seen = Seen("Produce")
        proxy.proxy.dispatcher.interception.install(seen)
        await produce(client, "t")
        await fetch(client, "t")
        assert (seen.requests, len(seen.responses), seen.done) == (["produce"], 1, ["produce"])
        proxy.proxy.dispatcher.interception.remove(seen)
        await produce(client, "t")
        assert seen.requests == ["produce"]


@simulated
async def test_an_interceptor_changes_and_refuses() -> None:
    class Refuses(Seen):
        async def on_request(self, context: RequestContext) -> Any:
            if context.request.topic_data[0].name == "refused":
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            context.request.topic_data[0].name = "t"

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            response.responses[0].name = "renamed"
            return response

    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        await create_topic(client, "t")
        proxy.proxy.dispatcher.interception.install(Refuses("Produce"))
        row = await produce(client, "refused")
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await produce(client, "other")).base_offset == 0
        assert (await fetch(client, "t")).high_watermark == 1


@simulated
async def test_an_interceptor_forwards_itself() -> None:
    class Twice(Interceptor):
        apis = frozenset({"Produce"})

        async def on_request(self, context: RequestContext) -> Any:
            await proxy.proxy.dispatcher.handle_behind_interceptors(context)
            return await proxy.proxy.dispatcher.handle_behind_interceptors(context)

    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        await create_topic(client, "t")
        proxy.proxy.dispatcher.interception.install(Twice())
        assert (await produce(client, "t")).base_offset == 1


@simulated
async def test_what_an_interceptor_has_forwarded_itself_is_forwarded_once() -> None:
    class Forwarding(Interceptor):
        apis = frozenset({"Produce"})

        async def on_request(self, context: RequestContext) -> Any:
            return await proxy.proxy.dispatcher.handle_behind_interceptors(context)

    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        await create_topic(client, "t")
        proxy.proxy.dispatcher.interception.install(Forwarding())
        for acks in (0, 1):
            await client.send(produce_request("t", batch(), acks=acks), PRODUCE_VERSION)
        response = await client.receive(ProduceResponse, PRODUCE_VERSION)
        assert response.responses[0].partition_responses[0].base_offset == 1


@simulated
async def test_responses_keep_their_order_if_some_are_made_here() -> None:
    class Every(Interceptor):
        apis = frozenset({"Produce"})
        count = 0

        async def on_request(self, context: RequestContext) -> Any:
            self.count += 1
            if self.count % 2:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async with SimBroker() as broker, SimProxy(broker.open_transport, BROKER) as proxy:
        client = proxy.connect()
        await create_topic(client, "t")
        proxy.proxy.dispatcher.interception.install(Every())
        for _ in range(10):
            await client.send(produce_request("t", batch()), PRODUCE_VERSION)
        errors = []
        for _ in range(10):
            response = await client.receive(ProduceResponse, PRODUCE_VERSION)
            errors.append(response.responses[0].partition_responses[0].error_code)
        assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0] * 5
