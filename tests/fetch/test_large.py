"""A Fetch of very many partitions: others have their turn meanwhile, and its response is that of any other one."""

from __future__ import annotations

import pytest
import trio

from oncelog.broker.fetch.fetch import Fetch
from oncelog.broker.fetch.large import PARTITIONS_AT_ONCE
from oncelog.broker.fetch.sessions import FetchItem, FetchKey, len_of
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.produce import ProduceResponse
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import finish
from tests.common.batches import batch
from tests.dispatch.test_large_requests import AUTHORIZER, FEW, LINES_PER_ROW, MANY
from tests.harness.requests import create_topic, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated, simulated_work
from tests.harness.steps import LongestTurn

VERSION = 12


def request(session_id: int, epoch: int, *topics: FetchTopic, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[*topics],
    )


def partitions(topic: str, count: int) -> FetchTopic:
    rows = [
        FetchPartition(partition=one, fetch_offset=0, partition_max_bytes=1 << 20) for one in range(count)
    ]
    return FetchTopic(topic, ZERO_UUID, rows)


async def begin(client: SimClient, topic: str, count: int) -> int:
    """Begin a session with so many partitions; return its id."""
    response = await client.call(request(0, 0, partitions(topic, count)), VERSION, FetchResponse)
    session_id = int(response.session_id)
    assert session_id > 0
    return session_id


@pytest.mark.slow
@pytest.mark.parametrize("config", [{}, AUTHORIZER], ids=["unknown", "denied"])
def test_the_work_between_two_turns_does_not_grow_with_the_session(config: dict[str, str]) -> None:
    turns: list[LongestTurn] = []

    @simulated_work(steps=2)
    async def run() -> None:
        async with SimBroker(config={**config, "auto.create.topics.enable": "false"}) as broker:
            client = broker.connect()
            for count in (FEW, MANY):
                session_id = await begin(client, "secret", count)
                turn = LongestTurn()
                response = await client.call(request(session_id, 1), VERSION, FetchResponse)
                turn.end()
                turns.append(turn)
                [topic] = response.responses
                assert len(topic.partitions) == count

    run()
    few, many = turns
    assert many.lines - few.lines < LINES_PER_ROW * (MANY - FEW), many.where.most_common(8)


@simulated
async def test_it_waits_for_a_record_in_any_of_its_partitions() -> None:
    count = PARTITIONS_AT_ONCE + 1
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "t", count)
        session_id = await begin(client, "t", count)
        responses: list[FetchResponse] = []

        async def fetch() -> None:
            asked = request(session_id, 1, max_wait_ms=60_000)
            responses.append(await client.call(asked, VERSION, FetchResponse))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            assert responses == []
            await other.call(produce_request("t", batch(), partition=count - 1), 9, ProduceResponse)
        [topic] = responses[0].responses
        assert [(row.partition_index, row.high_watermark) for row in topic.partitions] == [(count - 1, 1)]


@simulated
async def test_in_parts_the_response_is_the_same() -> None:
    async with SimBroker() as broker:
        client, node = broker.connect(), broker.node
        sessions = node.fetch_sessions

        async def write(topic: str, *partitions: int) -> None:
            for partition in partitions:
                await client.call(produce_request(topic, batch(), partition=partition), 9, ProduceResponse)

        def fetch(asked: FetchRequest, items: dict[FetchKey, FetchItem]) -> Fetch:
            opened = sessions.open(asked, items, uses_topic_ids=False)
            return Fetch(node.cluster, sessions, node.config.current, asked, VERSION, opened)

        def begin() -> int:
            items: dict[FetchKey, FetchItem] = {
                (topic, row.partition): FetchItem(topic, ZERO_UUID, row)
                for topic in ("a", "b", "unknown")
                for row in partitions(topic, 70).partitions
            }
            first = fetch(request(0, 0), items)
            assert finish(first.read_in_parts())
            return first.respond().session_id

        for name in ("a", "b"):
            await create_topic(client, name, 60)
            await write(name, 0, 3, 58)
        whole, in_parts = begin(), begin()
        await write("b", 1, 58)
        one, two = (fetch(request(session, 1), {}) for session in (whole, in_parts))
        assert one.read() == finish(two.read_in_parts()) is True
        found = [
            [
                (number, topic.topic, row.partition_index, row.error_code, len_of(row.records))
                for number, topic in enumerate(response.responses)
                for row in topic.partitions
            ]
            for response in (one.respond(), finish(two.respond_in_parts()))
        ]
        assert found[0] == found[1]
        assert len(found[0]) > 90
