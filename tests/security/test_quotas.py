"""Client quotas in a simulated broker: who is throttled, for how long, and what the response says then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.fast_produce import FastProduce
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.net.writer import ResponseWriter
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.harness.requests import bytes_of, create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import CLIENT_ID, SimClient
from tests.harness.simulation import simulated
from tests.security.quota_requests import ANYBODY, Names, set_quota

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
KEPT = {"retention.ms": "-1"}
LARGE, SMALL = (batch([record(value=bytes(size))]) for size in (5000, 400))


def size_of(records: bytes, acks: int = 1) -> int:
    return len(encode_request(produce_request("t", records, acks=acks), 9, 0, CLIENT_ID)) - 4


async def told(client: SimClient, records: bytes) -> int:
    """The throttle time of a Produce, in milliseconds."""
    response = await client.call(produce_request("t", records), 9, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


@simulated
async def test_a_producer_above_its_rate_is_told_and_muted_and_the_others_are_not() -> None:
    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(admin, "t", configs=KEPT)
        await set_quota(admin, {"user": "ANONYMOUS", "client-id": CLIENT_ID}, "producer_byte_rate", 100)
        began = trio.current_time()
        throttle_ms = size_of(LARGE) * 1000 // 100 - 10_000
        assert await told(client, LARGE) == throttle_ms > 30_000
        assert trio.current_time() == began, "the response comes first"
        assert (await admin.call(ListGroupsRequest(), 1, ListGroupsResponse)).throttle_time_ms == 0
        assert trio.current_time() == began
        assert (await client.call(ListGroupsRequest(), 1, ListGroupsResponse)).throttle_time_ms == 0
        assert trio.current_time() == pytest.approx(began + throttle_ms / 1000)
        assert await told(client, batch()) == 0, "it has waited long enough"


@simulated
async def test_a_producer_that_wants_no_responses_is_muted_too() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=KEPT)
        await set_quota(client, ANYBODY, "producer_byte_rate", 100)
        began = trio.current_time()
        await client.send(produce_request("t", LARGE, acks=0), 9)
        await client.call(ListGroupsRequest(), 1, ListGroupsResponse)
        throttled_s = size_of(LARGE, acks=0) / 100 - 10
        assert trio.current_time() == pytest.approx(began + throttled_s, abs=0.01)


@simulated
async def test_quotas_hold_and_end_with_the_next_request_and_are_there_after_a_restart() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=KEPT)
        assert broker.node.dispatcher.interception.quotas is None
        assert await told(client, LARGE) == 0
        await set_quota(client, {"ip": "10.0.0.1"}, "connection_creation_rate", 1)
        assert broker.node.dispatcher.interception.quotas is None, "nobody's requests have a quota"
        await set_quota(client, ANYBODY, "producer_byte_rate", 100)
        assert await told(client, LARGE) > 30_000
        client = await broker.restart()
        first = await told(client, LARGE)
        assert first > 30_000
        await set_quota(client, ANYBODY, "producer_byte_rate", 1e6)
        assert await told(client, LARGE) == 0
        await set_quota(client, ANYBODY, "producer_byte_rate", None)
        assert broker.node.dispatcher.interception.quotas is None
        assert await told(client, LARGE) == 0


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the fast paths did: ``produce``, ``fetch``."""
    found: list[str] = []
    append, send_now = FastProduce.append, ResponseWriter.send_now

    def handled(self: FastProduce, *arguments: Any) -> bool:
        is_handled = append(self, *arguments)
        found.extend(["produce"] * is_handled)
        return is_handled

    def sent(self: ResponseWriter) -> None:
        found.append("fetch")
        send_now(self)

    monkeypatch.setattr(FastProduce, "append", handled)
    monkeypatch.setattr(ResponseWriter, "send_now", sent)
    return found


def test_who_has_no_quota_keeps_the_fast_paths(taken: list[str]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            others: Names = {"client-id": "others"}
            admin, free, limited = broker.connect(), broker.connect(), broker.connect(client_id="others")
            await create_topic(admin, "t", configs=KEPT)
            await set_quota(admin, others, "producer_byte_rate", 1e9)
            offset = 0

            async def turn(producer: SimClient, consumer: SimClient) -> list[str]:
                """What the fast paths do when a consumer waits for the second record of a producer."""
                nonlocal offset
                await told(producer, SMALL)
                offset += 1
                await consumer.send(fetch_request("t", offset, max_wait_ms=60_000), 12)
                await trio.testing.wait_all_tasks_blocked()
                taken.clear()
                await told(producer, SMALL)
                offset += 1
                await consumer.receive(FetchResponse, 12)
                return list(taken)

            waiting, limited_waiting = broker.connect(), broker.connect(client_id="others")
            assert await turn(free, waiting) == ["produce", "fetch"]
            assert await turn(limited, waiting) == ["fetch"], "its quota concerns Produce"
            assert await turn(free, limited_waiting) == ["produce", "fetch"], "its quota concerns Produce"
            await set_quota(admin, others, "consumer_byte_rate", 1e9)
            assert await turn(free, limited_waiting) == ["produce"]
            await set_quota(admin, ANYBODY, "producer_byte_rate", 100)
            assert await told(free, LARGE) > 30_000, "what the fast path remembers is forgotten"

    run()


async def fetched(client: SimClient, request: FetchRequest) -> PartitionData:
    """The row of a Fetch, as soon as it is not throttled any more (the window grows until it is complete)."""
    for _ in range(20):
        response = await client.call(request, 12, FetchResponse)
        if not response.throttle_time_ms:
            row: PartitionData = response.responses[0].partitions[0]
            return row
    raise AssertionError("throttled for ever")


@simulated
async def test_a_throttled_fetch_is_empty_and_costs_nothing() -> None:
    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(admin, "t", configs=KEPT)
        for _ in range(3):
            await produce(admin, "t", SMALL)
        await set_quota(admin, ANYBODY, "consumer_byte_rate", 100)  # 1000 bytes in the window
        first = await client.call(fetch_request("t", 0, max_bytes=600), 12, FetchResponse)
        assert first.throttle_time_ms == 0
        assert first.responses[0].partitions[0].records
        began = trio.current_time()
        second = await client.call(fetch_request("t", 1, max_bytes=600), 12, FetchResponse)
        assert second.throttle_time_ms > 0
        assert (second.error_code, second.responses) == (0, [])
        assert trio.current_time() == began
        third = await fetched(client, fetch_request("t", 1, max_bytes=600))
        assert third.records
        waited = trio.current_time() - began
        assert second.throttle_time_ms / 1000 <= waited < 13, "nothing else was counted"


@simulated
async def test_a_throttled_fetch_changes_nothing_in_its_session() -> None:
    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(admin, "t", configs=KEPT)
        row = await produce(admin, "t", LARGE)
        assert row.error_code == 0, row
        request = fetch_request("t", 1)
        request.session_epoch = 0
        begun = await client.call(request, 12, FetchResponse)
        assert begun.session_id
        assert begun.responses[0].partitions[0].error_code == 0
        await set_quota(admin, ANYBODY, "consumer_byte_rate", 1)
        delete = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 1000)
        await admin.call(delete, 2, DeleteRecordsResponse)
        request.session_id, request.session_epoch, request.topics = begun.session_id, 1, []
        throttled = await client.call(request, 12, FetchResponse)
        assert (throttled.session_id, throttled.error_code, throttled.responses) == (begun.session_id, 0, [])
        assert throttled.throttle_time_ms > 0
        await set_quota(admin, ANYBODY, "consumer_byte_rate", None)
        request.session_epoch = 2
        whole = await client.call(request, 12, FetchResponse)
        assert whole.responses[0].partitions[0].log_start_offset == 1


@simulated
async def test_a_fetch_asks_for_no_more_than_its_window_allows() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t", configs=KEPT)
        for _ in range(100):
            await produce(client, "t", SMALL)
        await set_quota(client, ANYBODY, "consumer_byte_rate", 200)
        row = await fetched(client, fetch_request("t", 0, min_bytes=30_000))
        assert row.records is not None
        assert 1000 < len(bytes_of(row.records)) <= 2000


@simulated
async def test_a_fetch_that_waited_when_quotas_came_is_answered() -> None:
    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(admin, "t", configs=KEPT)
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        await set_quota(admin, ANYBODY, "consumer_byte_rate", 1)
        await produce(admin, "t", LARGE)
        response = await client.receive(FetchResponse, 12)
        assert response.throttle_time_ms == 0
        assert response.responses[0].partitions[0].records
        assert (await client.call(fetch_request("t", 0), 12, FetchResponse)).throttle_time_ms > 0


async def create(client: SimClient, version: int, *topics: tuple[str, int]) -> Any:
    request = CreateTopicsRequest([CreatableTopic(name, count, 1) for name, count in topics], 1000)
    return await client.call(request, version, CreateTopicsResponse)


@simulated
async def test_changes_of_topics_above_the_rate_are_refused_row_by_row() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await set_quota(client, {"user": None}, "controller_mutation_rate", 1)  # a burst of 11
        response = await create(client, 6, ("a", 10), ("b", 3), ("c", 1))
        assert [row.error_code for row in response.topics] == [0, 0, THROTTLED]
        assert response.topics[2].error_message is None
        assert response.throttle_time_ms == 2000
        began = trio.current_time()
        more = CreatePartitionsRequest([CreatePartitionsTopic("a", 12, None)], 1000)
        response = await client.call(more, 3, CreatePartitionsResponse)
        assert trio.current_time() == pytest.approx(began + 2)
        assert (response.results[0].error_code, response.throttle_time_ms) == (0, 0)
        delete = DeleteTopicsRequest(topic_names=["a", "b", "nowhere"], timeout_ms=1000)
        response = await client.call(delete, 5, DeleteTopicsResponse)
        codes = {row.name: row.error_code for row in response.responses}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {"a": THROTTLED, "b": THROTTLED, "nowhere": unknown}
        assert response.throttle_time_ms == 2000
        response = await client.call(delete, 5, DeleteTopicsResponse)
        codes = {row.name: row.error_code for row in response.responses}
        assert codes == {"a": 0, "b": THROTTLED, "nowhere": unknown}


@simulated
async def test_older_versions_are_throttled_but_not_refused() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await set_quota(client, {"user": None}, "controller_mutation_rate", 1)
        response = await create(client, 5, ("a", 14))
        assert ([row.error_code for row in response.topics], response.throttle_time_ms) == ([0], 3000)
        delete = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
        response = await client.call(delete, 4, DeleteTopicsResponse)
        assert (response.responses[0].error_code, response.throttle_time_ms) == (0, 14_000)


@simulated
async def test_a_topic_that_metadata_would_create_counts() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await set_quota(client, {"user": None}, "controller_mutation_rate", 1)
        await create(client, 6, ("a", 13))
        other = broker.connect()
        request = MetadataRequest([MetadataRequestTopic(name="new")], True)
        response = await other.call(request, 9, MetadataResponse)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.throttle_time_ms == 0
        await trio.sleep(2)
        response = await other.call(request, 9, MetadataResponse)
        assert response.topics[0].error_code == 0
        assert (await create(client, 6, ("b", 1))).throttle_time_ms == 1000


class Busy(Interceptor):
    """Every ListGroups takes the loop half a second, or only waits that long."""

    def __init__(self, *, is_busy: bool) -> None:
        self._is_busy = is_busy

    async def on_request(self, context: RequestContext) -> Any:
        if context.api.row.name == "list_groups":
            if self._is_busy:
                clock = trio.lowlevel.current_clock()
                assert isinstance(clock, trio.testing.MockClock)
                clock.jump(0.5)
            else:
                await trio.sleep(0.5)


@pytest.mark.parametrize(("percent", "is_busy", "throttle_ms"), [
    (4.9, True, 204),
    (5.1, True, 0),
    (1, True, 1000),
    (1, False, 0),
])  # fmt: skip
def test_the_time_of_the_loop_counts_and_waits_do_not(
    percent: float, is_busy: bool, throttle_ms: int
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            broker.node.dispatcher.interception.install(Busy(is_busy=is_busy))
            await set_quota(client, ANYBODY, "request_percentage", percent)
            for expected in (throttle_ms, 1000 if throttle_ms else 0):
                response = await client.call(ListGroupsRequest(), 1, ListGroupsResponse)
                assert response.throttle_time_ms == expected
                if percent > 5:
                    break

    run()


@simulated
async def test_a_client_that_goes_while_its_request_is_measured_leaves_nothing() -> None:
    async with SimBroker() as broker:
        client, admin = broker.connect(), broker.connect()
        await create_topic(admin, "t", configs=KEPT)
        await set_quota(admin, ANYBODY, "request_percentage", 50)
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        for connection in broker.server_connections():
            connection.close("a test")
        await trio.testing.wait_all_tasks_blocked()
        await broker.stop()
        assert not broker.node.cluster.leader_partition("t", 0).log.waiters
