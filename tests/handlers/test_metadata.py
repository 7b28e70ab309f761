"""Metadata: topics by name and by id, and topics that the request creates."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

__all__ = ["lines"]  # a fixture


async def call(client: SimClient, names: list[str] | None, version: int = 12, *, create: bool = False) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    # Before version 4 a client could not prevent it.
    request = MetadataRequest(topics, create or version < 4)
    return await client.call(request, version, MetadataResponse)


@simulated
async def test_all_none_and_named() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        for name in ("a", "b"):
            await create_topic(client, name, 2)
        assert {topic.name for topic in (await call(client, None)).topics} == {"a", "b"}
        assert (await call(client, [])).topics == []
        assert {topic.name for topic in (await call(client, [], 0)).topics} == {"a", "b"}
        response = await call(client, ["b"])
        [broker_row] = response.brokers
        assert (broker_row.host, broker_row.port) == ("simulated", 9092)
        assert response.controller_id == broker_row.node_id
        assert response.cluster_id
        [topic] = response.topics
        assert [(row.partition_index, row.leader_id, row.leader_epoch) for row in topic.partitions] == [
            (0, broker_row.node_id, 0),
            (1, broker_row.node_id, 0),
        ]


@simulated
async def test_by_id() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a")
        rows = [MetadataRequestTopic(one, None) for one in (b"\5" * 16, topic_id)]
        response = await client.call(MetadataRequest(rows), 12, MetadataResponse)
        got = [(topic.error_code, topic.name, topic.topic_id) for topic in response.topics]
        assert got == [(ErrorCode.UNKNOWN_TOPIC_ID, None, b"\5" * 16), (0, "a", topic_id)]


@pytest.mark.parametrize(("enabled", "allowed"), [(True, True), (True, False), (False, True)])
def test_a_missing_topic_is_created_if_both_sides_allow_it(enabled: bool, allowed: bool) -> None:
    @simulated
    async def run() -> None:
        config = {"auto.create.topics.enable": str(enabled).lower(), "num.partitions": "3"}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            response = await call(client, ["new", "bad name"], create=allowed)
            rows = {topic.name: topic for topic in response.topics}
            made = enabled and allowed
            assert rows["new"].error_code == (0 if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert len(rows["new"].partitions) == (3 if made else 0)
            assert rows["bad name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run()


@simulated
async def test_a_topic_that_cannot_be_created_is_unknown_and_the_log_says_why(lines: list[str]) -> None:
    async with SimBroker(config={"default.replication.factor": "3"}) as broker:
        client = broker.connect()
        await create_topic(client, "a.b")
        for _ in range(2):
            response = await call(client, ["a_b", "c", "bad name"], create=True)
            rows = {topic.name: topic.error_code for topic in response.topics}
            unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
            assert rows == {"a_b": unknown, "c": unknown, "bad name": invalid}
    refused = [line for line in lines if "topic not created on first use" in line]
    assert ["topic=a_b" in line for line in refused] == [True, False], refused
    assert "collides with existing topic" in refused[0]
    assert "only 1 broker(s) are registered" in refused[1]


@simulated
async def test_authorized_operations_on_request_only() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a")
        response = await call(client, ["a"], 10)
        assert (
            response.cluster_authorized_operations
            == response.topics[0].topic_authorized_operations
            == -(2**31)
        )
        request = MetadataRequest([MetadataRequestTopic(name="a")], False, True, True)
        response = await client.call(request, 10, MetadataResponse)
        assert response.cluster_authorized_operations > 0
        assert response.topics[0].topic_authorized_operations > 0
