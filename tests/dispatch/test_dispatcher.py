"""What is installed in the dispatcher: it sees every request and every response, whatever fast path there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.fast_produce import FastProduce
from oncelog.broker.dispatch.interfaces import Interceptor, Quotas
from oncelog.broker.requests.authorization import (
    ALTER,
    ANONYMOUS,
    THE_CLUSTER,
    TOPIC_RESOURCE,
    WRITE,
)
from oncelog.broker.requests.request import CloseConnection
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext


__all__ = ["lines"]  # a fixture


class Recorder(Interceptor):
    """Writes down the APIs of what passes; waits a while each time, as a fault rule may."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.responses: list[str] = []

    async def on_request(self, context: RequestContext) -> Any:
        await trio.sleep(1)
        self.requests.append(context.api.row.name)

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        await trio.sleep(1)
        self.responses.append(context.api.row.name)
        return response


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every request that the fast path of Produce was asked for: whether it took it."""
    found: list[bool] = []
    append = FastProduce.append

    def told(self: FastProduce, *arguments: Any) -> bool:
        found.append(append(self, *arguments))
        return found[-1]

    monkeypatch.setattr(FastProduce, "append", told)
    return found


def test_an_interceptor_installed_while_clients_are_connected_sees_everything_from_then_on(
    fast: list[bool],
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            dispatcher = broker.node.dispatcher
            producer, consumer, late = (broker.connect() for _ in range(3))
            await create_topic(producer, "t")
            for _ in range(2):
                await produce(producer, "t")
            assert fast == [True]
            await consumer.send(fetch_request("t", 2, max_wait_ms=60_000), 12)
            await trio.testing.wait_all_tasks_blocked()
            recorder = Recorder()
            dispatcher.interception.install(recorder)
            offsets = [(await produce(producer, "t")).base_offset for _ in range(3)]
            row = (await consumer.receive(FetchResponse, 12)).responses[0].partitions[0]
            await late.call(ListGroupsRequest(), 0, ListGroupsResponse)
            assert offsets == [2, 3, 4]
            assert row.records
            assert recorder.requests == ["produce"] * 3 + ["list_groups"]
            assert sorted(recorder.responses) == ["fetch", "list_groups"] + ["produce"] * 3
            assert fast == [True]
            # A Fetch that comes now is seen twice; one that waits when it is removed, only before.
            await consumer.send(fetch_request("t", 5, max_wait_ms=60_000), 12)
            await trio.sleep(10)
            dispatcher.interception.remove(recorder)
            for _ in range(3):
                await produce(producer, "t")
            assert (await consumer.receive(FetchResponse, 12)).responses[0].partitions[0].records
            assert recorder.requests == ["produce"] * 3 + ["list_groups", "fetch"]
            assert len(recorder.responses) == 5
            assert fast[1:] == [True, True]  # the first one was decoded and remembered anew
            with pytest.raises(ValueError, match="not installed"):
                dispatcher.interception.remove(recorder)

    run()


@simulated
async def test_pipelined_requests_are_answered_in_order_and_their_records_are_their_own() -> None:
    """The buffer they were read into serves other connections while an interceptor waits."""
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "t", 2)
        recorder = Recorder()
        broker.node.dispatcher.interception.install(recorder)
        sent = [batch(number) for number in (1, 2, 3)]
        for records in sent:
            await client.send(produce_request("t", records, 0), 9)
            await other.send(produce_request("t", batch(5), 1), 9)
        offsets = [
            (await client.receive(ProduceResponse, 9)).responses[0].partition_responses[0].base_offset
            for _ in sent
        ]
        assert offsets == [0, 1, 3]
        for _ in sent:
            row = (await other.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
            assert row.error_code == 0
        assert len(recorder.requests) == len(recorder.responses) == 6


@simulated
async def test_an_interceptor_refuses_answers_drops_and_closes() -> None:
    class Rules(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            name = context.api.row.name
            if name == "list_groups":
                return ListGroupsResponse(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if name == "elect_leaders":
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "on purpose")
            if name == "describe_quorum":
                raise CloseConnection("on purpose")
            return None

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            return None if context.api.row.name == "api_versions" else response

    async with SimBroker() as broker:
        client = broker.connect()
        broker.node.dispatcher.interception.install(Rules())
        groups = await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        assert groups.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = await client.call(ElectLeadersRequest(), 2, ElectLeadersResponse)
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        await client.send(ApiVersionsRequest(), 0)
        await trio.testing.wait_all_tasks_blocked()
        assert client.unread() == 0
        # The connection goes on: the next response is that of the next request.
        assert (await client.call(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == groups.error_code
        with pytest.raises(ConnectionEndedError):
            await client.call(DescribeQuorumRequest(), 0, DescribeQuorumResponse)


@simulated
async def test_interceptors_stand_in_the_order_of_their_installation() -> None:
    order: list[str] = []

    class Named(Interceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_request(self, context: RequestContext) -> Any:
            order.append(f"{self.name} request")

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            order.append(f"{self.name} response")
            return response

    async with SimBroker() as broker:
        for name in ("outer", "inner"):
            broker.node.dispatcher.interception.install(Named(name))
        await broker.connect().call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert order == ["outer request", "inner request", "inner response", "outer response"]


def test_a_throttled_client_is_told_and_muted(fast: list[bool]) -> None:
    class Quota(Quotas):
        def throttle(
            self, principal: str, client_id: str | None, context: RequestContext, response: Any
        ) -> int:
            assert (principal, context.principal) == (ANONYMOUS, ANONYMOUS)
            return 5_000 if context.api.row.name == "produce" else 0

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "t")
            for _ in range(2):
                await produce(client, "t")
            broker.node.dispatcher.interception.throttle_with(Quota())
            began = trio.current_time()
            for _ in range(2):  # the second one is read together with the first
                await client.send(produce_request("t", batch()), 9)
            for waited in (0, 5):
                assert (await client.receive(ProduceResponse, 9)).throttle_time_ms == 5_000
                assert trio.current_time() - began == waited
            assert (await other.call(ListGroupsRequest(), 1, ListGroupsResponse)).throttle_time_ms == 0
            assert trio.current_time() - began == 5
            broker.node.dispatcher.interception.throttle_with(None)
            assert (await produce(client, "t")).base_offset == 4
            assert trio.current_time() - began == 10

    run()
    assert fast == [True, False]


def test_rights_are_asked_for_and_their_change_empties_the_fast_path(fast: list[bool]) -> None:
    asked: list[tuple[str, str, int, tuple[int, str]]] = []

    class OnlyTopics:
        def authorize(self, principal: str, host: str, operation: int, resource: tuple[int, str]) -> bool:
            asked.append((principal, host, operation, resource))
            return resource[0] == TOPIC_RESOURCE

        def authorize_by_resource_type(
            self, principal: str, host: str, operation: int, resource_type: int
        ) -> bool:
            return False

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            for _ in range(2):
                await produce(client, "t")
            assert fast == [True]
            broker.authorize_with(OnlyTopics())
            await produce(client, "t")
            assert fast == [True, False]
            refused = await client.call(ElectLeadersRequest(), 2, ElectLeadersResponse)
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            acl = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
            rows = (await client.call(CreateAclsRequest([acl] * 2), 1, CreateAclsResponse)).results
            assert [row.error_code for row in rows] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
            broker.authorize_with(None)
            allowed = await broker.connect().call(ElectLeadersRequest(), 2, ElectLeadersResponse)
            assert allowed.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run()
    who = ANONYMOUS, "client"
    assert asked == [(*who, WRITE, (TOPIC_RESOURCE, "t")), *[(*who, ALTER, THE_CLUSTER)] * 2]


@simulated
async def test_a_bug_that_every_request_meets_is_one_traceback_a_minute(lines: list[str]) -> None:
    class Broken(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            raise ZeroDivisionError

    async with SimBroker() as broker:
        broker.node.host.fail_on_internal_errors = False
        broker.node.dispatcher.interception.install(Broken())
        for _ in range(10):
            response = await broker.connect().call(ListGroupsRequest(), 0, ListGroupsResponse)
            assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        [line] = [line for line in lines if "internal error" in line]
        assert "Traceback" in line
