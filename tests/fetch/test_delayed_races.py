"""A delayed fetch is completed once, and leaves nothing behind, whatever happens while an append satisfies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor, Quotas
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext
    from tests.harness.sim_client import SimClient

LARGE = batch([record(None, bytes(20_000))])
"""Sent as a range of the log file."""


class Slow(Interceptor):
    """Every response, and every request of ListGroups, waits for a second."""

    async def on_request(self, context: RequestContext) -> Any:
        if context.api.row.name == "list_groups":
            await trio.sleep(1)

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        await trio.sleep(1)
        return response


class MuteFetches(Quotas):
    """Quotas by which every Fetch mutes its connection for a second."""

    def throttle(self, principal: str, client_id: str | None, context: RequestContext, response: Any) -> int:
        return 1000 if context.api.row.name == "fetch" else 0


async def wait_at(client: SimClient, offset: int = 0) -> None:
    await client.send(fetch_request("t", offset, max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()


async def row_of(client: SimClient) -> Any:
    return (await client.receive(FetchResponse, 12)).responses[0].partitions[0]


def assert_nothing_is_left(broker: SimBroker, client: SimClient) -> None:
    assert client.unread() == 0
    assert broker.files.held == 0
    assert not broker.node.cluster.leader_partition("t", 0).log.waiters


@pytest.mark.parametrize("records", [batch(), LARGE], ids=["small", "large"])
@simulated
async def test_the_interceptor_that_sees_its_response_is_removed_before_the_appender_looks(
    records: bytes,
) -> None:
    async with SimBroker() as broker:
        dispatcher = broker.node.dispatcher
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        slow = Slow()
        dispatcher.interception.install(slow)
        await writer.send(produce_request("t", records), 9)
        await writer.send(ListGroupsRequest(), 0)
        await trio.sleep(0.5)  # its response is with the interceptor, and so is that to the Produce
        dispatcher.interception.remove(slow)
        assert (await writer.receive(ProduceResponse, 9)).responses[0].partition_responses[0].error_code == 0
        assert (await writer.receive(ListGroupsResponse, 0)).error_code == 0
        assert len((await row_of(client)).records) == len(records)
        await trio.testing.wait_all_tasks_blocked()
        assert_nothing_is_left(broker, client)
        await wait_at(client, 1)
        await produce(writer, "t")
        assert (await row_of(client)).high_watermark == 2


@simulated
async def test_its_connection_is_muted_and_the_quotas_are_removed_before_the_appender_looks() -> None:
    async with SimBroker() as broker:
        dispatcher = broker.node.dispatcher
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        slow = Slow()
        dispatcher.interception.install(slow)
        dispatcher.interception.throttle_with(MuteFetches())
        await writer.send(produce_request("t", batch()), 9)
        await writer.send(ListGroupsRequest(), 0)
        await trio.sleep(1.5)  # the response has left; the appender waits in the request of ListGroups
        assert (await row_of(client)).high_watermark == 1
        dispatcher.interception.remove(slow)
        dispatcher.interception.throttle_with(None)
        assert (await writer.receive(ProduceResponse, 9)).responses[0].partition_responses[0].error_code == 0
        assert (await writer.receive(ListGroupsResponse, 0)).error_code == 0
        await trio.sleep(5)
        assert_nothing_is_left(broker, client)


@simulated
async def test_an_interceptor_that_does_not_wait_sees_its_response() -> None:
    """The task of the fetch has no turn between the append and the moment when the appender looks."""
    seen: list[str] = []

    class Seeing(Interceptor):
        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append(context.api.row.name)
            return response

    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        broker.node.dispatcher.interception.install(Seeing())
        await produce(writer, "t")
        assert (await row_of(client)).records
        assert sorted(seen) == ["fetch", "produce"]


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "removed"])
@pytest.mark.parametrize("ticks", range(6))
@simulated
async def test_an_interceptor_comes_or_goes_at_the_moment_of_the_append(
    is_installed: bool, ticks: int
) -> None:
    """Whatever number of turns of the loop it is after the Produce was sent."""
    async with SimBroker() as broker:
        dispatcher = broker.node.dispatcher
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        interceptor = Interceptor()
        if not is_installed:
            dispatcher.interception.install(interceptor)
        await wait_at(client)
        for _ in range(3):
            await writer.send(produce_request("t", batch()), 9)
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        if is_installed:
            dispatcher.interception.install(interceptor)
        else:
            dispatcher.interception.remove(interceptor)
        assert (await row_of(client)).records
        await trio.testing.wait_all_tasks_blocked()
        assert_nothing_is_left(broker, client)


@pytest.mark.parametrize("records", [batch(), LARGE], ids=["small", "large"])
@pytest.mark.parametrize("ends", ["lost", "closed", "stopped"])
@pytest.mark.parametrize("ticks", range(4))
@simulated
async def test_its_connection_ends_at_the_moment_of_the_append(records: bytes, ends: str, ticks: int) -> None:
    async with SimBroker(pipe_bytes_max=1000) as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await wait_at(client)
        log = broker.node.cluster.leader_partition("t", 0).log
        [connection] = [one for one in broker.server_connections() if one.idle_since() is None]
        await writer.send(produce_request("t", records), 9)
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        if ends == "lost":
            client.transport.break_off()
        elif ends == "closed":
            connection.close("on purpose")
        else:
            await broker.stop()
        await trio.testing.wait_all_tasks_blocked()
        if ends != "stopped":
            response = await writer.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].error_code == 0
            assert connection not in broker.server_connections()
        assert broker.files.held == 0
        assert not log.waiters


@simulated
async def test_its_session_is_evicted_while_it_waits() -> None:
    """The response still names the session, as Kafka's does; the next request is told that there is none."""
    async with SimBroker(config={"max.incremental.fetch.session.cache.slots": "1"}) as broker:
        client, other, writer = (broker.connect() for _ in range(3))
        topic_id = await create_topic(writer, "t")

        def request(session_id: int, epoch: int, max_wait_ms: int) -> FetchRequest:
            rows = [FetchPartition(0, fetch_offset=0)]
            return FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic("t", topic_id, rows)],
            )

        session_id = (await client.call(request(0, 0, 0), 13, FetchResponse)).session_id
        assert session_id
        await client.send(request(session_id, 1, 600_000), 13)
        await trio.testing.wait_all_tasks_blocked()
        broker.clock.advance(200)
        assert (await other.call(request(0, 0, 0), 13, FetchResponse)).session_id not in (0, session_id)
        await produce(writer, "t")
        response = await client.receive(FetchResponse, 13)
        assert (response.session_id, response.error_code) == (session_id, 0)
        assert response.responses[0].partitions[0].records
        again = await client.call(request(session_id, 2, 0), 13, FetchResponse)
        assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert_nothing_is_left(broker, client)


@simulated
async def test_another_request_of_its_session_comes_while_it_waits() -> None:
    async with SimBroker() as broker:
        client, other, writer = (broker.connect() for _ in range(3))
        topic_id = await create_topic(writer, "t", 2)

        def request(epoch: int, partition: int, max_wait_ms: int) -> FetchRequest:
            return FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic("t", topic_id, [FetchPartition(partition, fetch_offset=0)])],
            )

        session_id = 0
        session_id = (await client.call(request(0, 0, 0), 13, FetchResponse)).session_id
        await client.send(request(1, 0, 600_000), 13)
        await trio.testing.wait_all_tasks_blocked()
        await other.send(request(2, 1, 600_000), 13)
        await trio.testing.wait_all_tasks_blocked()
        await produce(writer, "t", LARGE)
        assert (await client.receive(FetchResponse, 13)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        row = (await other.receive(FetchResponse, 13)).responses[0].partitions[0]
        assert len(row.records) == len(LARGE)
        await trio.testing.wait_all_tasks_blocked()
        assert_nothing_is_left(broker, client)


@simulated
async def test_its_response_is_made_from_a_file_that_cannot_be_read() -> None:
    """The consumer is told so, once; its connection goes on."""
    async with SimBroker() as broker:
        client, writer = broker.connect(), broker.connect()
        await create_topic(writer, "t")
        await produce(writer, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=len(batch()) + 1), 12)
        await trio.testing.wait_all_tasks_blocked()
        log = broker.node.cluster.leader_partition("t", 0).log
        log.fail(OSError("on purpose"))
        row = await row_of(client)
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.call(ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse)).error_code == 0
        assert_nothing_is_left_of(broker, client, log)


def assert_nothing_is_left_of(broker: SimBroker, client: SimClient, log: Any) -> None:
    assert client.unread() == 0
    assert broker.files.held == 0
    assert not log.waiters
