"""The journal: what it shows of requests of every kind, its bounds, and that it keeps nothing of a connection's."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
import trio.testing

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.journal import BYTES_KEPT
from oncelog.broker.control.operations.waiting import requests
from oncelog.broker.control.types import Record
from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.faults.fault_rules import FaultRules
from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.requests.request import CloseConnection, RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.common.batches import batch, record
from tests.control.journaled import journaled
from tests.harness.offset_requests import commit
from tests.harness.offsets_topic import find
from tests.harness.requests import create_topic, fetch, fetch_request, produce, produce_request
from tests.harness.sim_broker import EPOCH_MS
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


@simulated
async def test_a_produce_with_its_records() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        for value in (b"a", b"b"):
            await produce(client, "t", batch([record(b"k", value)], codec=1, base_timestamp=EPOCH_MS))
        first, second = await requests(broker, api="Produce")
        assert (second.api, second.version, second.client_id) == ("Produce", 9, "simulated")
        assert (second.topics, second.groups, second.transactional_ids) == (("t",), (), ())
        assert (second.outcome, second.errors, second.timestamp) == ("responded", (), EPOCH_MS)
        assert second.number == first.number + 1
        assert second.body.acks == 1
        assert second.response.responses[0].partition_responses[0].base_offset == 1
        assert second.records == [Record("t", 0, 1, b"b", b"k", timestamp=EPOCH_MS, leader_epoch=0)]
        assert first.records[0].value == b"a"
        assert repr(second) == "<Request 3: Produce v9 client_id='simulated' topic='t' responded>"
        assert pickle.loads(pickle.dumps(second)) == second
        assert await requests(broker, api="Fetch") == []


@simulated
async def test_the_end_of_a_transaction_says_which() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        producer = TransactionalProducer(Link(client), "app")
        await producer.init()
        for commit_it in (True, False):
            await producer.send("t", 0, [b"v"], EPOCH_MS)
            await producer.end(commit=commit_it)
        shown = [repr(one).partition(": ")[2] for one in await requests(broker, api="EndTxn")]
        assert shown == [
            f"EndTxn v5 client_id='simulated' transactional_id='app' {end} responded>"
            for end in ("commit", "abort")
        ]


@simulated
async def test_records_that_the_broker_compressed_anew_have_their_offsets() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t", configs={"compression.type": "gzip"})
        for _ in range(2):
            await produce(client, "t", batch([record(None, b"a"), record(None, b"b", offset_delta=1)]))
        last = (await requests(broker, api="Produce"))[-1]
        assert [one.offset for one in last.records] == [2, 3]


@simulated
async def test_topics_that_are_named_by_id_also_after_their_deletion() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        topic_id = await create_topic(client, "t")
        rows = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, batch())])]
        await client.call(ProduceRequest(None, 1, 1000, rows), 13, ProduceResponse)
        partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])
        await client.call(request, 13, FetchResponse)
        deleted = DeleteTopicsRequest([DeleteTopicState(None, topic_id)], timeout_ms=1000)
        await client.call(deleted, 6, DeleteTopicsResponse)
        found = await requests(broker, topic="t")
        assert [one.api for one in found] == ["CreateTopics", "Produce", "Fetch", "DeleteTopics"]
        assert found[1].body.topic_data[0].name == "t"
        assert found[1].records[0].topic == "t"
        assert found[2].response.responses[0].topic == "t"
        await broker.stop()
        assert await requests(broker, topic="t") == found


@simulated
async def test_filters() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        assert (await commit(client, "g", {"t": {0: 5}}))["t", 0] == ErrorCode.NOT_COORDINATOR
        await find(client)
        for group in ("g", "g", "other"):
            await commit(client, group, {"t": {0: 5}})
        await client.call(HeartbeatRequest("g", 1, "nobody"), 4, HeartbeatResponse)

        async def apis(**filters: Any) -> list[str]:
            return [one.api for one in await requests(broker, **filters)]

        committed = ["OffsetCommit", "OffsetCommit"]
        assert await apis(group="g") == ["OffsetCommit", "FindCoordinator", *committed, "Heartbeat"]
        assert await apis(group="g", error="NONE") == ["FindCoordinator", *committed]
        assert await apis(error="UNKNOWN_MEMBER_ID") == ["Heartbeat"]
        assert await apis(api="OffsetCommit", topic="t", error="NOT_COORDINATOR") == ["OffsetCommit"]
        assert await apis(client_id="simulated", limit=2) == ["OffsetCommit", "Heartbeat"]
        assert await apis(client_id="another") == await apis(topic="u") == []
        assert await apis(limit=0) == []


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"api": "Offsetcommit"}, "api='Offsetcommit'; did you mean OffsetCommit"),
        ({"api": "offset_commit"}, "did you mean OffsetCommit"),
        ({"error": "NOT_LEADER"}, "did you mean .*NOT_LEADER_OR_FOLLOWER"),
        ({"limit": -1}, "limit=-1: expected a number of requests"),
    ],
)
@simulated
async def test_words_that_mean_nothing(filters: Any, message: str) -> None:
    async with journaled() as broker:
        with pytest.raises(InvalidArgumentError, match=message):
            await requests(broker, **filters)


@pytest.mark.parametrize("api_key", HANDLERS)
@simulated
async def test_requests_of_every_api_and_version(api_key: int) -> None:
    handler = HANDLERS[api_key]
    async with journaled(oncelog_client_metrics_enable="true") as broker:
        broker.node.host.fail_on_internal_errors = False
        api = Api(handler)
        for version in range(handler.min_version, handler.max_version + 1):
            client = broker.sim.connect()
            await client.send(api.request(), version)
            await trio.testing.wait_all_tasks_blocked()
        found = await requests(broker, api=api_name(handler.name))
        assert [one.version for one in found] == list(range(handler.min_version, handler.max_version + 1))
        for one in found:
            assert type(one.body) is api.request
            assert pickle.loads(pickle.dumps(one)) == one
            assert repr(one).startswith(f"<Request {one.number}: {one.api} v{one.version}")


FAULTS = [
    ({"error": "NOT_LEADER_OR_FOLLOWER"}, "responded", ("NOT_LEADER_OR_FOLLOWER",)),
    ({"drop_response": "close"}, "closed", ()),
    ({"drop_response": "hang"}, "pending", ()),
    ({"drop_request": "close"}, "closed", ()),
    ({"hold": True}, "pending", ()),
    ({"duplicate": True}, "responded", ()),
]


@pytest.mark.parametrize(("action", "outcome", "errors"), FAULTS)
@simulated
async def test_a_request_that_meets_a_fault(action: Any, outcome: str, errors: Any) -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        faults = FaultRules(random.Random(1))
        faults.attach(broker.node)
        faults.add({"on": "Produce", "topic": "t", **action})
        await client.send(produce_request("t", batch([record(None, b"v")])), 9)
        await trio.testing.wait_all_tasks_blocked()
        [found] = await requests(broker, api="Produce")
        assert (found.outcome, found.errors) == (outcome, errors)
        assert [one.value for one in found.records] == [b"v"]
        client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        [found] = await requests(broker, topic="t", api="Produce")
        if action == {"drop_response": "hang"}:
            assert found.outcome == "lost"


class Acting(Interceptor):
    """Does something to the response of every Fetch."""

    def __init__(self, act: str) -> None:
        self.act = act

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        if context.api.row.name != "fetch":
            return response
        if self.act == "close":
            raise CloseConnection("on purpose")
        if self.act == "replace":
            return FetchResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None


@pytest.mark.parametrize(
    ("act", "outcome", "errors"),
    [
        ("drop", "dropped", ()),
        ("close", "closed", ()),
        ("replace", "responded", ("NOT_LEADER_OR_FOLLOWER",)),
    ],
)
@simulated
async def test_what_becomes_of_requests(act: str, outcome: str, errors: Any) -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await client.send(produce_request("t", batch(), acks=0), 9)
        broker.node.dispatcher.interception.install(Acting(act))
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        produced, fetched = (await requests(broker))[1:]
        assert (produced.outcome, produced.response) == ("no response", None)
        assert (fetched.outcome, fetched.errors) == (outcome, errors)


@simulated
async def test_a_request_that_waits_until_the_broker_ends() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        [waiting] = await requests(broker, api="Fetch")
        assert (waiting.outcome, waiting.is_done, waiting.response) == ("pending", False, None)
        await broker.stop()
        [lost] = await requests(broker, api="Fetch")
        assert lost.outcome == "lost"
        await broker.start()
        other = broker.sim.connect()
        await fetch(other, "t")
        assert [one.outcome for one in await requests(broker, api="Fetch")] == ["lost", "responded"]


@simulated
async def test_a_fetch_of_a_range_of_a_file_keeps_no_file() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(None, bytes(50_000))]))
        assert len((await fetch(client, "t")).records or b"") > 50_000  # type: ignore[arg-type]
        assert broker.sim.files.held == 0
        [fetched] = await requests(broker, api="Fetch")
        assert fetched.response.responses[0].partitions[0].records is None
        assert fetched.response.responses[0].partitions[0].high_watermark == 1


@simulated
async def test_chatter_does_not_push_out_other_requests() -> None:
    async with journaled(kept=3) as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        for _ in range(10):
            await fetch(client, "t")
        found = await requests(broker)
        assert [one.api for one in found] == ["CreateTopics", "Fetch", "Fetch", "Fetch"]
        assert [one.number for one in found] == [1, 9, 10, 11]


@simulated
async def test_bytes_are_bounded() -> None:
    async with journaled(message_max_bytes="20000000") as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        size = BYTES_KEPT // 5
        for _ in range(9):
            assert (await produce(client, "t", batch([record(None, bytes(size))]))).error_code == 0
        found = await requests(broker)
        assert [one.api for one in found] == ["CreateTopics"] + ["Produce"] * 4
        assert found[-1].response.responses[0].partition_responses[0].base_offset == 8


@simulated
async def test_a_journal_that_keeps_nothing_is_not_installed() -> None:
    async with journaled(kept=0) as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        assert await requests(broker) == []
        assert not broker.node.dispatcher.interception.interceptors


@simulated
async def test_cleared() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        broker.journal.clear()
        await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        [found] = await requests(broker)
        assert found.number == 2
