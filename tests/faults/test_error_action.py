"""The action `error`: refuses a request, or some of its rows."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.faults.rules import REFUSED, codes, list_groups, ruled, two_topics
from tests.harness.requests import bytes_of, create_topic, produce, produce_request, read_all
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated


@simulated
async def test_an_error_stands_in_place_of_the_request() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        rule = it.add(on="ListGroups", error="COORDINATOR_LOAD_IN_PROGRESS", first=2)
        codes = [await list_groups(client) for _ in range(3)]
        assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [0]
        assert it.counts(rule) == (3, 2)


@simulated
async def test_an_error_for_all_rows_handles_none() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        rule = it.add(on="Produce", error="NOT_LEADER_OR_FOLLOWER", nth=1)
        assert (await produce(client, "t")).error_code == REFUSED
        assert (await produce(client, "t")).base_offset == 0
        assert it.counts(rule) == (2, 1)


@simulated
async def test_an_error_for_one_topic_leaves_the_other_rows_as_they_are() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        for name in "abc":
            await create_topic(client, name, 2)
        it.add(on="Produce", topic="b", partition=1, error="NOT_LEADER_OR_FOLLOWER")
        rows = [("a", 0), ("b", 0), ("b", 1), ("c", 1)]
        response = await client.call(two_topics(*rows), 9, ProduceResponse)
        assert codes(response) == [("a", 0, 0), ("b", 0, 0), ("b", 1, REFUSED), ("c", 1, 0)]
        assert [len(await read_all(client, *row)) for row in rows] == [1, 1, 0, 1]
        # Without the matching row nothing happens.
        assert codes(await client.call(two_topics(("b", 0)), 9, ProduceResponse)) == [("b", 0, 0)]


@simulated
async def test_two_rules_refuse_different_rows_of_one_request() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        for name in "abc":
            await create_topic(client, name)
        first = it.add(on="Produce", topic="a", error="NOT_LEADER_OR_FOLLOWER")
        second = it.add(on="Produce", topic=["a", "c"], error="MESSAGE_TOO_LARGE")
        response = await client.call(two_topics(("a", 0), ("b", 0), ("c", 0)), 9, ProduceResponse)
        assert codes(response) == [("a", 0, REFUSED), ("b", 0, 0), ("c", 0, ErrorCode.MESSAGE_TOO_LARGE)]
        assert (it.counts(first), it.counts(second)) == ((1, 1), (1, 1))


@simulated
async def test_an_error_for_a_produce_with_acks_0_closes_its_connection() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="Produce", error="NOT_LEADER_OR_FOLLOWER")
        await client.send(produce_request("t", batch(), acks=0), 9)
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


def session_request(session_id: int, epoch: int, *topics: str) -> FetchRequest:
    rows = [
        FetchTopic(name, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
        for name in topics
    ]
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=rows,
    )


@simulated
async def test_an_error_reaches_a_partition_that_only_the_fetch_session_names() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "a")
        await create_topic(client, "b")
        await produce(client, "a")
        first = await client.call(session_request(0, 0, "a", "b"), 12, FetchResponse)
        rule = it.add(on="Fetch", topic="b", error="NOT_LEADER_OR_FOLLOWER", first=1)
        refused = await client.call(session_request(first.session_id, 1), 12, FetchResponse)
        [row] = [topic for topic in refused.responses if topic.topic == "b"]
        assert (row.partitions[0].error_code, refused.error_code) == (REFUSED, 0)
        assert refused.session_id == first.session_id
        assert it.counts(rule) == (1, 1)
        # A partition that the request takes out of the session is not meant.
        last = session_request(first.session_id, 2)
        last.forgotten_topics_data = [ForgottenTopic("b", partitions=[0])]
        await client.send(last, 12)
        assert (await client.receive(FetchResponse, 12)).error_code == 0
        assert it.counts(rule) == (1, 1)
        # The session goes on.
        third = await client.call(session_request(first.session_id, 3), 12, FetchResponse)
        assert (third.error_code, [topic.topic for topic in third.responses]) == (0, ["a"])


@simulated
async def test_an_error_for_one_topic_of_a_fetch_sends_the_records_of_the_other() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        large = batch([record(None, bytes(20_000))])
        for name in "ab":
            await create_topic(client, name)
            await produce(client, name, large)
        it.add(on="Fetch", topic="a", error="NOT_LEADER_OR_FOLLOWER")
        response = await client.call(session_request(0, -1, "a", "b"), 12, FetchResponse)
        rows = {topic.topic: topic.partitions[0] for topic in response.responses}
        assert (rows["a"].error_code, bytes_of(rows["a"].records)) == (REFUSED, b"")
        assert (rows["b"].error_code, len(bytes_of(rows["b"].records))) == (0, len(large))


@simulated
async def test_an_error_for_one_group_of_find_coordinator() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await client.call(FindCoordinatorRequest("", 0, ["x"]), 4, FindCoordinatorResponse)
        it.add(on="FindCoordinator", group="b", error="COORDINATOR_NOT_AVAILABLE")
        response = await client.call(
            FindCoordinatorRequest("", 0, ["a", "b", "c"]), 4, FindCoordinatorResponse
        )
        assert [(row.key, row.error_code) for row in response.coordinators] == [("a", 0), ("b", 15), ("c", 0)]
        response = await client.call(FindCoordinatorRequest("", 1, ["b"]), 4, FindCoordinatorResponse)
        assert response.coordinators[0].error_code == 0, "a transactional id is no group"


@simulated
async def test_api_versions_of_an_unknown_version_can_be_refused() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="ApiVersions", error="UNKNOWN_SERVER_ERROR")
        await client.send_frame(bytes.fromhex("0012 0063 00000007 ffff"))
        assert (await client.receive(ApiVersionsResponse, 0)).error_code == -1
        assert (await client.call(ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse)).error_code == -1
