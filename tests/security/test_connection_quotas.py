"""Quotas of connections: how many a second an address, a listener and the broker accept."""

from __future__ import annotations

import pathlib
import socket
import threading
from typing import Any

import pytest
import trio
import trio.testing
from confluent_kafka import Producer

import oncelog
from oncelog.broker.dispatch.interception import LARGE_REQUESTS_AT_ONCE
from oncelog.broker.seams.os_files import OFFLOAD_THREADS
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaAlteration,
)
from oncelog.wire.messages.describe_client_quotas import EntityData
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.common.frames import Connection
from tests.harness import look_ups
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.sim_network import MemoryListener
from tests.harness.simulation import simulated
from tests.security.quota_requests import set_quota


async def is_served(broker: SimBroker, host: str) -> bool:
    """Whether a new connection from there is; if not, the broker closes it."""
    client = broker.connect(host)
    try:
        await client.call(ListGroupsRequest(), 1, ListGroupsResponse)
    except ConnectionEndedError:
        return False
    return True


@simulated
async def test_an_address_that_connects_too_often_is_closed_after_a_while() -> None:
    async with SimBroker() as broker:
        admin = broker.connect("10.0.0.2")
        await set_quota(admin, {"ip": "10.0.0.1"}, "connection_creation_rate", 1)  # 10 in the window
        began = trio.current_time()
        for _ in range(10):
            assert await is_served(broker, "10.0.0.1")
        assert trio.current_time() == began
        assert not await is_served(broker, "10.0.0.1")
        assert trio.current_time() == pytest.approx(began + 1), "capped by quota.window.size.seconds"
        for _ in range(20):
            assert await is_served(broker, "10.0.0.2")
        await trio.sleep(20)
        assert await is_served(broker, "10.0.0.1")
        await set_quota(admin, {"ip": None}, "connection_creation_rate", 1)
        assert [await is_served(broker, "10.0.0.3") for _ in range(11)] == [True] * 10 + [False]
        await set_quota(admin, {"ip": None}, "connection_creation_rate", None)
        assert all([await is_served(broker, "10.0.0.3") for _ in range(20)])


@simulated
async def test_all_connections_together_are_accepted_no_faster_than_their_rate() -> None:
    async with SimBroker(config={"max.connection.creation.rate": "1"}) as broker:
        began = trio.current_time()
        for number in range(10):
            assert await is_served(broker, f"10.0.0.{number}")
        assert trio.current_time() == began
        assert await is_served(broker, "10.0.1.1")
        assert trio.current_time() == pytest.approx(began + 1)


@simulated
async def test_each_listener_accepts_no_faster_than_its_rate() -> None:
    config = {
        "max.connection.creation.rate": "2",
        "listener.name.external.max.connection.creation.rate": "1",
        "listener.name.plaintext.max.connection.creation.rate": "1000",
    }
    async with SimBroker(config=config, others=("EXTERNAL", "INSIDE")) as broker:

        async def seconds(listener: MemoryListener, connections: int) -> float:
            """How long it takes to connect that often."""
            began = trio.current_time()
            for _ in range(connections):
                client = SimClient(listener.connect("10.0.0.1"))
                await client.call(ListGroupsRequest(), 1, ListGroupsResponse)
            return trio.current_time() - began

        external, inside = broker.others["EXTERNAL"], broker.others["INSIDE"]
        assert await seconds(external, 10) == 0
        assert await seconds(external, 1) == pytest.approx(1)
        assert await seconds(inside, 9) == 0
        assert await seconds(inside, 1) > 0, "both together are above the broker's rate"
        assert await seconds(broker.listener, 100) == 0, "brokers use it among themselves"


@simulated
async def test_the_rate_of_a_listener_changes_while_it_is_open() -> None:
    async with SimBroker() as broker:
        admin = broker.connect()

        async def alter(key: str, value: str | None) -> int:
            """Return the error."""
            change = AlterableConfig(f"listener.name.plaintext.{key}", 0 if value else 1, value)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "", [change])], False)
            response = await admin.call(request, 1, IncrementalAlterConfigsResponse)
            return int(response.responses[0].error_code)

        for wrong in ("0", "-1", "many"):
            assert await alter("max.connection.creation.rate", wrong) == ErrorCode.INVALID_REQUEST
        assert await alter("max.connection.creation.rate", "1") == 0
        began = trio.current_time()
        for _ in range(10):
            assert await is_served(broker, "10.0.0.1")
        assert trio.current_time() == pytest.approx(began + 1), "the connection before the change counts"
        assert await alter("max.connection.creation.rate", None) == 0
        for _ in range(10):
            assert await is_served(broker, "10.0.0.1")
        assert trio.current_time() == pytest.approx(began + 1)


@simulated
async def test_the_connections_of_a_listener_are_limited() -> None:
    config = {"listener.name.external.max.connections": "2", "max.connections": "3"}
    async with SimBroker(config=config, others=("EXTERNAL",)) as broker:

        async def is_open(listener: MemoryListener) -> SimClient | None:
            client = SimClient(listener.connect("10.0.0.1"))
            with trio.move_on_after(1):
                await client.call(ListGroupsRequest(), 1, ListGroupsResponse)
                return client
            return None

        external = broker.others["EXTERNAL"]
        first, second = await is_open(external), await is_open(external)
        assert first is not None
        assert second is not None
        assert await is_open(external) is None, "it waits for a place"
        assert await is_open(broker.listener) is not None
        first.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.server_connections()) == 3, "the one that waited"


def test_a_quota_of_a_host_holds_for_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def hosts(**addresses: str) -> None:
        monkeypatch.setattr(look_ups, "ADDRESSES", addresses)

    @simulated
    async def run() -> None:
        hosts(one="10.0.0.1", two="10.0.0.2")
        async with SimBroker() as broker:
            admin = broker.connect()
            entity, op = [EntityData("ip", "nowhere")], OpData("connection_creation_rate", 1.0, False)
            request = AlterClientQuotasRequest([QuotaAlteration(entity, [op])])
            response = await admin.call(request, 1, AlterClientQuotasResponse)
            [row] = response.entries
            assert row.error_code == ErrorCode.INVALID_REQUEST
            assert row.error_message == "nowhere is not a valid IP or resolvable host."
            await set_quota(admin, {"ip": "one"}, "connection_creation_rate", 1)
            assert [await is_served(broker, "10.0.0.1") for _ in range(11)] == [True] * 10 + [False]
            assert all([await is_served(broker, "10.0.0.2") for _ in range(11)])
            hosts(one="10.0.0.9")
            await broker.restart()
            await trio.testing.wait_all_tasks_blocked()
            assert [await is_served(broker, "10.0.0.9") for _ in range(11)] == [True] * 10 + [False]

    run()


def quotas_of(*hosts: str) -> AlterClientQuotasRequest:
    op = OpData("connection_creation_rate", 1.0, False)
    return AlterClientQuotasRequest([QuotaAlteration([EntityData("ip", host)], [op]) for host in hosts])


@simulated
async def test_look_ups_take_no_turn_of_large_requests() -> None:
    async def never(name: str, threads: trio.CapacityLimiter) -> str | None:
        await trio.sleep_forever()
        return None

    request = quotas_of(*(f"{number}.invalid" for number in range(2100)))
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(2100)]
    async with SimBroker() as broker, trio.open_nursery() as nursery:
        broker.node.host.host_names.look_up = never
        for _ in range(LARGE_REQUESTS_AT_ONCE):
            nursery.start_soon(broker.connect().call, request, 1, AlterClientQuotasResponse)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            asked = MetadataRequest(topics, allow_auto_topic_creation=False)
            response = await broker.connect().call(asked, 9, MetadataResponse)
        assert len(response.topics) == 2100
        nursery.cancel_scope.cancel()


@pytest.mark.slow
def test_look_ups_take_no_thread_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """A resolver that does not answer, and a record whose acknowledgement waits for the disk."""
    answers, real = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **more: Any) -> Any:
        if str(host).endswith(".invalid"):
            answers.wait()
            raise socket.gaierror
        return real(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    config = {"log.flush.interval.messages": "1"}
    with oncelog.Broker(topics=["orders"], data_dir=str(tmp_path), config=config) as kafka:
        connections = [Connection(kafka.bootstrap_servers) for _ in range(2 * OFFLOAD_THREADS)]
        for number, connection in enumerate(connections):
            connection.send_frame(encode_request(quotas_of(f"{number}.invalid"), 1, 1, "admin")[4:])
        while len(kafka.requests("AlterClientQuotas")) < len(connections):
            pass
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("orders", b"coffee")
        assert producer.flush(60) == 0
        answers.set()
        for connection in connections:
            connection.close()
