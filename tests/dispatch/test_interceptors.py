"""Interceptors that fail, wait, drop responses, and are installed or removed in the middle of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.common.batches import batch, record
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.requests.request import RequestContext

__all__ = ["lines"]  # a fixture

LARGE = batch([record(None, bytes(20_000))])
"""Sent as a range of the log file."""


class OnResponse(Interceptor):
    """Calls a function with the response to every Fetch."""

    def __init__(self, act: Callable[[Any], Awaitable[Any]]) -> None:
        self.act = act

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        return await self.act(response) if context.api.row.name == "fetch" else response


async def drop(response: Any) -> Any:
    return None


async def drop_records(response: Any) -> Any:
    response.responses[0].partitions[0].records = b""
    return response


async def replace(response: Any) -> Any:
    return FetchResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


async def refuse(response: Any) -> Any:
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def fail(response: Any) -> Any:
    raise ZeroDivisionError


async def close(response: Any) -> Any:
    raise CloseConnection("on purpose")


async def wait(response: Any) -> Any:
    await trio.sleep_forever()


async def go_on(response: Any) -> Any:
    return response


@pytest.mark.parametrize("act", [drop, drop_records, replace, refuse, fail, close, wait, go_on])
@pytest.mark.parametrize("waits", [False, True], ids=["ready", "delayed"])
@simulated
async def test_files_of_a_response_that_is_not_sent_are_released(act: Any, waits: bool) -> None:
    async with SimBroker() as broker:
        broker.node.host.fail_on_internal_errors = False
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        broker.node.dispatcher.interception.install(OnResponse(act))
        if not waits:
            await produce(writer, "t", LARGE)
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        if waits:
            await produce(writer, "t", LARGE)
        await trio.testing.wait_all_tasks_blocked()
        if act is wait:
            await broker.stop()
        assert broker.files.held == 0
        if act is go_on:
            row = (await client.receive(FetchResponse, 12)).responses[0].partitions[0]
            assert len(row.records) == len(LARGE)


class Done(Interceptor):
    """Notes what becomes of each request, and the bytes that it had."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        self.frames: list[memoryview | None] = []

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self.seen.append((context.api.row.name, response, failure))
        self.frames.append(context.frame)


@pytest.mark.parametrize("act", [drop, replace, refuse, fail, close])
@simulated
async def test_done_is_told_what_leaves(act: Any) -> None:
    async with SimBroker() as broker:
        broker.node.host.fail_on_internal_errors = False
        client = broker.connect()
        await create_topic(client, "t")
        done = Done()
        broker.node.dispatcher.interception.install(done)
        broker.node.dispatcher.interception.install(OnResponse(act))
        request = fetch_request("t", 0)
        await client.send(request, 12)
        await trio.testing.wait_all_tasks_blocked()
        [(name, response, failure)] = done.seen
        assert name == "fetch"
        if act is close:
            assert isinstance(failure, CloseConnection)
        else:
            assert failure is None
        if act in (drop, close):
            assert response is None
        else:
            assert response == await client.receive(FetchResponse, 12)
        [frame] = done.frames
        assert frame is not None
        assert bytes(frame).endswith(request.encode(12))


@simulated
async def test_done_is_told_of_no_response_and_of_a_lost_client() -> None:
    async with SimBroker() as broker:
        client, lost = broker.connect(), broker.connect()
        await create_topic(client, "t")
        done = Done()
        broker.node.dispatcher.interception.install(done)
        await client.send(produce_request("t", batch(), acks=0), 9)
        await trio.testing.wait_all_tasks_blocked()
        assert done.seen == [("produce", None, None)]
        await lost.send(fetch_request("t", 1, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        await broker.stop()
        assert [(name, response) for name, response, _ in done.seen[1:]] == [("fetch", None)]
        assert isinstance(done.seen[1][2], trio.Cancelled)


@simulated
async def test_one_that_is_removed_in_the_middle_of_a_request_sees_nothing_from_then_on() -> None:
    seen: list[str] = []

    class Slow(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            await trio.sleep(1)

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            await trio.sleep(1)
            return response

    class Seeing(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            seen.append("request")

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append("response")
            return response

    async with SimBroker() as broker:
        dispatcher = broker.node.dispatcher
        for requests, inner in (([], True), (["request"], False)):
            slow, seeing = Slow(), Seeing()
            for one in (slow, seeing) if inner else (seeing, slow):
                dispatcher.interception.install(one)
            client = broker.connect()
            await client.send(ListGroupsRequest(), 0)
            await trio.sleep(0.5 if inner else 1.5)
            dispatcher.interception.remove(seeing)
            assert (await client.receive(ListGroupsResponse, 0)).error_code == 0
            assert seen == requests
            dispatcher.interception.remove(slow)


@simulated
async def test_an_interceptor_may_install_and_remove_interceptors() -> None:
    seen: list[str] = []

    class Installed(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            seen.append("request")

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append("response")
            return response

    class Installing(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            broker.node.dispatcher.interception.install(Installed())
            broker.node.dispatcher.interception.remove(self)

    async with SimBroker() as broker:
        client = broker.connect()
        broker.node.dispatcher.interception.install(Installing())
        for _ in range(2):
            assert (await client.call(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == 0
        assert seen == ["response", "request", "response"]


@simulated
async def test_a_produce_with_acks_0_gets_no_response_from_an_interceptor_either() -> None:
    given: list[Any] = []

    class Answering(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            return given.pop() if context.api.row.name == "produce" and given else None

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            assert response is not None
            return response

    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        broker.node.dispatcher.interception.install(Answering())
        for code in (None, ErrorCode.NONE):
            if code is not None:
                row = PartitionProduceResponse(0, code, 5)
                given.append(ProduceResponse([TopicProduceResponse("t", partition_responses=[row])]))
            await client.send(produce_request("t", batch(), acks=0), 9)
            assert (await client.call(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == 0
        await client.send(produce_request("t", batch(crc=1), acks=0), 9)
        with pytest.raises(ConnectionEndedError):
            await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        assert (await produce(broker.connect(), "t")).base_offset == 1


@pytest.mark.parametrize("acks", [0, 1])
@simulated
async def test_what_an_interceptor_has_handled_itself_is_handled_once(acks: int) -> None:
    class Handling(Interceptor):
        apis = frozenset({"Produce"})

        async def on_request(self, context: RequestContext) -> Any:
            if context.api_name == "Produce":
                return await broker.node.dispatcher.handle_behind_interceptors(context)
            return None

    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        done = Done()
        broker.node.dispatcher.interception.install(done)
        broker.node.dispatcher.interception.install(Handling())
        await client.send(produce_request("t", batch(), acks=acks), 9)
        if acks:
            await client.receive(ProduceResponse, 9)
        assert (await client.call(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == 0
        assert broker.node.logs.get("t", 0).log_end_offset == 1
        assert [(name, response is None) for name, response, _ in done.seen] == [
            ("produce", acks == 0),
            ("list_groups", False),
        ]


@simulated
async def test_a_request_may_be_neither_handled_nor_responded_to() -> None:
    class Silent(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            return NO_RESPONSE if context.api_name == "Produce" else None

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            return NO_RESPONSE if context.api_name == "Fetch" else response

    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        broker.node.dispatcher.interception.install(Silent())
        await client.send(produce_request("t", batch()), 9)
        await client.send(fetch_request("t", 0), 12)
        assert (await client.call(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == 0
        assert broker.node.logs.get("t", 0).log_end_offset == 0


@simulated
async def test_an_error_for_a_produce_with_acks_0_closes_its_connection() -> None:
    """Its producer learns of an error only so."""

    class Answering(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            row = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return ProduceResponse([TopicProduceResponse("t", partition_responses=[row])])

    async with SimBroker() as broker:
        client = broker.connect()
        broker.node.dispatcher.interception.install(Answering())
        await client.send(produce_request("t", batch(), acks=0), 9)
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


@simulated
async def test_api_versions_of_an_unknown_version_passes_them() -> None:
    seen: list[Any] = []

    class Seeing(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            seen.append(context.request)

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append(response.error_code)
            return response

    async with SimBroker() as broker:
        client = broker.connect()
        broker.node.dispatcher.interception.install(Seeing())
        await client.send_frame(bytes.fromhex("0012 0063 00000007 ffff"))
        response = await client.receive(ApiVersionsResponse, 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert seen == [None, ErrorCode.UNSUPPORTED_VERSION]
        assert (await client.call(ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse)).error_code == 0


@pytest.mark.parametrize("error", [OSError("no such file"), trio.ClosedResourceError(), ZeroDivisionError()])
@simulated
async def test_no_error_of_an_interceptor_is_taken_for_a_lost_peer(
    error: Exception, lines: list[str]
) -> None:
    class Failing(Interceptor):
        async def on_request(self, context: RequestContext) -> Any:
            raise error

    async with SimBroker() as broker:
        broker.node.host.fail_on_internal_errors = False
        client = broker.connect()
        broker.node.dispatcher.interception.install(Failing())
        response = await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.node.host.internal_errors == 1
        assert [type(error).__name__ in line for line in lines if "internal error" in line] == [True]


@simulated
async def test_records_of_a_produce_that_waited_for_the_disk_are_never_those_of_another() -> None:
    seen: list[Any] = []

    class Seeing(Interceptor):
        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append(context.request.topic_data[0].partition_data[0].records)
            return response

    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "flushed", configs={"flush.messages": "1"})
        await create_topic(client, "t")
        broker.files.latency_s = 5
        mine = batch([record(None, b"mine")])
        await client.send(produce_request("flushed", mine), 9)
        await trio.testing.wait_all_tasks_blocked()
        await produce(other, "t", batch([record(None, b"another's")]))
        broker.node.dispatcher.interception.install(Seeing())
        await client.receive(ProduceResponse, 9)
        [records] = seen
        assert records is None or bytes(records) == mine
