"""Quotas of a proxy's own, in virtual time: clients are told, muted, and go on."""

from __future__ import annotations

import contextlib

import pytest
import trio

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.opening import open_connection
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, QuotaAlteration
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_client_quotas import EntityData
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.client.security.test_login import password
from tests.common.batches import batch, record
from tests.harness.requests import fetch_request, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy
from tests.proxy.test_logins import BOOTSTRAP, MECHANISMS

KEPT = {"log.retention.ms": "-1"}
USERS = {"app": "app-secret", "other": "x"}
VERSION = 12
RECORDS = batch([record(value=b"x" * 1000, offset_delta=number) for number in range(20)])
RATE = 1000
"""Bytes in a second: `RECORDS` take twenty, of which the windows of a quota span eleven."""
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def proxy_before(broker: SimBroker, *acls: str) -> SimProxy:
    config = dict(MECHANISMS)
    if acls:
        config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        config["super.users"] = "User:other"
    return SimProxy(
        broker.open_transport, BOOTSTRAP, config, listeners=("SASL_PLAINTEXT",), users=USERS, acls=acls
    )


async def logged_in(proxy: SimProxy, name: str = "app") -> ClientConnection:
    security = password("PLAIN", name, USERS[name])
    connection = await open_connection(proxy.open_transport, HOST, PORT + 1, security=security)
    await connection.call(MetadataRequest([MetadataRequestTopic(name="t")]))
    return connection


async def set_quota(client: ClientConnection, key: str, value: float | None) -> None:
    change = OpData(key, value or 0.0, value is None)
    entry = QuotaAlteration([EntityData("user", "app")], [change])
    response = await client.call(AlterClientQuotasRequest([entry]))
    assert response.entries[0].error_code == 0


@simulated
async def test_a_producer_over_its_quota_is_told_and_muted() -> None:
    async with SimBroker(config=KEPT) as broker, proxy_before(broker) as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "producer_byte_rate", RATE)
        response = await client.call(produce_request("t", RECORDS), VERSION)
        assert response.responses[0].partition_responses[0].error_code == 0
        throttle_s = response.throttle_time_ms / 1000
        assert throttle_s > 5
        began = trio.current_time()
        assert (await other.call(produce_request("t", RECORDS), VERSION)).throttle_time_ms == 0
        assert trio.current_time() - began < 0.1
        await client.call(MetadataRequest([]))
        assert trio.current_time() - began == pytest.approx(throttle_s, abs=0.2)
        await set_quota(other, "producer_byte_rate", None)
        assert (await client.call(produce_request("t", RECORDS), VERSION)).throttle_time_ms == 0


@simulated
async def test_a_consumer_over_its_quota_gets_an_empty_response_and_the_records_later() -> None:
    async with SimBroker(config=KEPT) as broker, proxy_before(broker) as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "consumer_byte_rate", 4 * RATE)
        for _ in range(4):
            await other.call(produce_request("t", RECORDS), VERSION)
        offset, empty, began = 0, 0, trio.current_time()
        while offset < 80:
            response = await client.call(fetch_request("t", offset, max_wait_ms=0), VERSION)
            if response.throttle_time_ms:
                assert response.responses == []
                empty += 1
            else:
                records = response.responses[0].partitions[0].records
                assert isinstance(records, memoryview)
                assert records
                offset += 20 * (len(records) // len(RECORDS))
        assert empty
        assert trio.current_time() - began > 5
        seen = await other.call(fetch_request("t", 0, max_wait_ms=0), VERSION)
        assert seen.throttle_time_ms == 0


async def create(
    client: ClientConnection, version: int, *topics: tuple[str, int]
) -> tuple[dict[str, int], int]:
    """Return the error of each topic, and the throttling that the client is told of."""
    request = CreateTopicsRequest([CreatableTopic(name, count, -1) for name, count in topics], 1000)
    response = await client.call(request, version)
    return {row.name: row.error_code for row in response.topics}, response.throttle_time_ms


@simulated
async def test_changes_of_topics_above_the_rate_are_refused_topic_by_topic() -> None:
    async with SimBroker() as broker, proxy_before(broker) as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "controller_mutation_rate", 1)  # a burst of 11
        told = await create(client, 6, ("a", 10), ("b", 3), ("c", 1))
        assert told == ({"a": 0, "b": 0, "c": THROTTLED}, 2000)
        assert "c" not in broker.node.metadata.image.topics
        began = trio.current_time()
        more = CreatePartitionsRequest([CreatePartitionsTopic("a", 12, None)], 1000)
        response = await client.call(more, 3)
        assert trio.current_time() == pytest.approx(began + 2, abs=0.1)
        assert (response.results[0].error_code, response.throttle_time_ms) == (0, 0)
        topic_id = broker.node.metadata.image.topics["a"].topic_id
        rows = [DeleteTopicState(topic_id=topic_id), DeleteTopicState("b"), DeleteTopicState("nowhere")]
        deleted = await client.call(DeleteTopicsRequest(rows, timeout_ms=1000), 6)
        codes = {row.name: row.error_code for row in deleted.responses}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {"a": THROTTLED, "b": THROTTLED, "nowhere": unknown}
        assert deleted.throttle_time_ms == pytest.approx(2000, abs=100)
        deleted = await client.call(DeleteTopicsRequest(rows, timeout_ms=1000), 6)
        codes = {row.name: row.error_code for row in deleted.responses}
        assert codes == {"a": 0, "b": THROTTLED, "nowhere": unknown}
        assert set(broker.node.metadata.image.topics) == {"b", "t"}
        assert await create(other, 6, *((f"more-{number}", 9) for number in range(3))) == (
            {"more-0": 0, "more-1": 0, "more-2": 0},
            0,
        )


@simulated
async def test_older_versions_are_throttled_but_not_refused() -> None:
    async with SimBroker() as broker, proxy_before(broker) as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "controller_mutation_rate", 1)
        assert await create(client, 5, ("a", 14)) == ({"a": 0}, 3000)
        response = await client.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4)
        assert response.responses[0].error_code == 0
        assert response.throttle_time_ms == pytest.approx(14_000, abs=100)


@simulated
async def test_only_what_upstream_does_counts() -> None:
    config = {"num.partitions": "12"}
    async with SimBroker(config=config) as broker, proxy_before(broker) as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "controller_mutation_rate", 1)
        codes, throttle_ms = await create(client, 7, ("t", 12), ("no such/name", 12))
        assert codes == {
            "t": ErrorCode.TOPIC_ALREADY_EXISTS,
            "no such/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert throttle_ms == 0
        assert await create(client, 7, ("default", -1)) == ({"default": 0}, 0)
        assert await create(client, 7, ("one", 1)) == ({"one": THROTTLED}, 1000)


@simulated
async def test_what_is_denied_does_not_count() -> None:
    async with SimBroker() as broker, proxy_before(broker, "User:app Create topic:mine") as proxy:
        client, other = await logged_in(proxy), await logged_in(proxy, "other")
        await set_quota(other, "controller_mutation_rate", 1)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await create(client, 7, ("yours", 99), ("mine", 12)) == ({"yours": denied, "mine": 0}, 0)
        assert await create(client, 7, ("yours", 1), ("mine", 1)) == (
            {"yours": denied, "mine": ErrorCode.TOPIC_ALREADY_EXISTS},
            0,
        )


@simulated
async def test_connections_of_an_address_are_limited_from_the_change_on() -> None:
    async with SimBroker() as broker, proxy_before(broker) as proxy:
        other = await logged_in(proxy, "other")
        change = OpData("connection_creation_rate", 1.0, False)
        entry = QuotaAlteration([EntityData("ip", None)], [change])
        assert (await other.call(AlterClientQuotasRequest([entry]))).entries[0].error_code == 0
        served = 0
        with contextlib.suppress(KafkaError):
            for _ in range(12):
                await logged_in(proxy)
                served += 1
        assert served in (10, 11)
