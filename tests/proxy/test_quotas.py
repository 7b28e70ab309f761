"""Quotas of a proxy's own, in virtual time: clients are told, muted, and go on."""

from __future__ import annotations

import pytest
import trio

from compat_tests.batches import batch, record
from oncelog.broker.client.connection import ClientConnection, open_connection
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, QuotaAlteration
from oncelog.wire.messages.describe_client_quotas import EntityData
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.client.security.test_log_in import password
from tests.harness.requests import fetch_request, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy
from tests.proxy.test_log_ins import BOOTSTRAP, MECHANISMS

KEPT = {"log.retention.ms": "-1"}
USERS = {"app": "app-secret", "other": "x"}
VERSION = 12
RECORDS = batch([record(value=b"x" * 1000, offset_delta=number) for number in range(20)])
RATE = 1000
"""Bytes in a second: `RECORDS` take twenty, of which the windows of a quota span eleven."""


def proxy_before(broker: SimBroker) -> SimProxy:
    return SimProxy(broker.open_transport, BOOTSTRAP, MECHANISMS, listeners=("SASL_PLAINTEXT",), users=USERS)


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
