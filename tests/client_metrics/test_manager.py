"""Metrics of clients in a simulated broker: who is asked for which, what is kept, what is refused."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.client_metrics.manager import PUSHES_MAX, subscription_id
from oncelog.wire.compression import compress
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.common.otlp import GAUGE, field, metrics, number
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import CLIENT_ID, ConnectionEndedError, SimClient
from tests.harness.simulation import simulated

NEW = bytes(16)
ENABLED = {"oncelog.client.metrics.enable": "true"}
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


async def subscribe(client: SimClient, name: str, **texts: str | None) -> None:
    changes = [
        AlterableConfig(key.replace("_", "."), 1 if text is None else 0, text) for key, text in texts.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(16, name, changes)], False)
    response = await client.call(request, 1, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0, response


async def ask(client: SimClient, instance: bytes = NEW) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(instance), 0, GetTelemetrySubscriptionsResponse)


async def push(
    client: SimClient, asked: Any, data: bytes = GAUGE, codec: int = NONE, *, terminating: bool = False
) -> int:
    """Return the error."""
    request = PushTelemetryRequest(
        asked.client_instance_id, asked.subscription_id, terminating, codec, compress(codec, data)
    )
    response = await client.call(request, 0, PushTelemetryResponse)
    return int(response.error_code)


@simulated
async def test_without_the_key_nobody_is_asked() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        response = await client.call(ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse)
        assert not {71, 72} & {row.api_key for row in response.api_keys}
        with pytest.raises(ConnectionEndedError):
            await ask(client)


@simulated
async def test_what_a_client_is_asked_for() -> None:
    async with SimBroker(config=ENABLED) as broker:
        admin, client = broker.connect(), broker.connect()
        versions = await client.call(ApiVersionsRequest("soft-ware", "1.2"), 3, ApiVersionsResponse)
        assert {71, 72} < {row.api_key for row in versions.api_keys}
        first = await ask(client)
        assert (first.error_code, first.requested_metrics, first.push_interval_ms) == (0, [], 300_000)
        assert first.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
        assert (first.telemetry_max_bytes, first.delta_temporality) == (1048576, True)
        assert first.client_instance_id != NEW
        await subscribe(admin, "others", metrics="c.", match="client_id=nobody", interval_ms="100")
        await subscribe(admin, "old", metrics="d.", match="client_software_version=1\\.[01]")
        same = await ask(client, first.client_instance_id)
        assert same.subscription_id == first.subscription_id, "neither concerns it"
        await subscribe(admin, "one", metrics="a.,b.", interval_ms="5000")
        await subscribe(
            admin, "two", metrics="b.,c.", match=f"client_software_name=soft.*,client_id={CLIENT_ID}"
        )
        asked = await ask(client, first.client_instance_id)
        assert (asked.requested_metrics, asked.push_interval_ms) == (["a.", "b.", "c."], 5000)
        assert asked.subscription_id != first.subscription_id
        await subscribe(admin, "all", metrics="*")
        assert (await ask(client, first.client_instance_id)).requested_metrics == ["*"]
        for name in ("one", "two", "all"):
            await subscribe(admin, name, metrics=None, interval_ms=None, match=None)
        last = await ask(client, first.client_instance_id)
        assert (last.requested_metrics, last.subscription_id) == ([], first.subscription_id)


@simulated
async def test_a_client_asks_and_pushes_once_in_an_interval() -> None:
    async with SimBroker(config=ENABLED) as broker:
        client = broker.connect()
        await subscribe(client, "s", metrics="*", interval_ms="10000")
        asked = await ask(client)
        again = await ask(client, asked.client_instance_id)
        assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert again.client_instance_id == NEW
        assert await push(client, asked) == 0, "the first push may come early"
        assert await push(client, asked) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await trio.sleep(10)
        assert await push(client, asked) == 0
        await trio.sleep(9)
        assert (await ask(client, asked.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        asked.subscription_id += 1
        await trio.sleep(1)
        assert await push(client, asked) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        asked = await ask(client, asked.client_instance_id)
        assert asked.error_code == 0, "it has to ask again at once"
        assert await push(client, asked, terminating=True) == 0, "the last push may come early"
        await trio.sleep(20)
        assert await push(client, asked) == ErrorCode.INVALID_REQUEST, "it said that it was the last one"
        pushes = broker.node.client_metrics.pushes
        assert [one.is_terminating for one in pushes] == [False, False, True]


@simulated
async def test_what_is_refused() -> None:
    config = {**ENABLED, "telemetry.max.bytes": "5000"}
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        await subscribe(client, "s", metrics="*", interval_ms="100")

        async def pushed(data: bytes, codec: int, **changed: Any) -> int:
            await trio.sleep(1)
            asked = await ask(client)
            request = PushTelemetryRequest(
                asked.client_instance_id, asked.subscription_id, False, codec, data
            )
            for name, value in changed.items():
                setattr(request, name, value)
            return int((await client.call(request, 0, PushTelemetryResponse)).error_code)

        for instance in (NEW, bytes(15) + b"\1"):
            assert await pushed(GAUGE, NONE, client_instance_id=instance) == ErrorCode.INVALID_REQUEST
        assert await pushed(GAUGE, 5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert await pushed(bytes(5001), NONE) == ErrorCode.TELEMETRY_TOO_LARGE
        assert await pushed(compress(GZIP, GAUGE * 100), GZIP) == ErrorCode.INVALID_RECORD, (
            "once decompressed"
        )
        assert await pushed(b"no gzip", GZIP) == ErrorCode.INVALID_RECORD
        assert await pushed(GAUGE[:-1], NONE) == ErrorCode.INVALID_RECORD
        assert await pushed(b"", NONE) == 0
        assert not broker.node.client_metrics.pushes
        for codec in (GZIP, SNAPPY, LZ4, ZSTD):
            assert await pushed(compress(codec, GAUGE), codec) == 0
        assert [one.metrics for one in broker.node.client_metrics.pushes] == [GAUGE] * 4


@simulated
async def test_a_client_is_forgotten_with_its_connection_and_after_silence() -> None:
    async with SimBroker(config=ENABLED) as broker:
        client = broker.connect()
        await subscribe(client, "s", metrics="*", interval_ms="600000")
        asked = await ask(client)
        client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        other = broker.connect()
        assert (await ask(other, asked.client_instance_id)).error_code == 0
        assert (await ask(other, asked.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@simulated
async def test_what_is_kept_is_bounded() -> None:
    async with SimBroker(config=ENABLED) as broker:
        client = broker.connect()
        await subscribe(client, "s", metrics="*", interval_ms="100")
        asked = await ask(client)
        for _ in range(PUSHES_MAX + 5):
            assert await push(client, asked) == 0
            await trio.sleep(0.2)
        pushes = broker.node.client_metrics.pushes
        assert (len(pushes), pushes[0].number, pushes[-1].number) == (PUSHES_MAX, 6, PUSHES_MAX + 5)


@simulated
async def test_another_instance_id_does_not_evade_the_interval() -> None:
    """One connection is one client."""
    async with SimBroker(config=ENABLED) as broker:
        client = broker.connect()
        await subscribe(client, "s", metrics="*", interval_ms="10000")
        asked = await ask(client)
        assert await push(client, asked) == 0
        fresh = await ask(client)
        assert fresh.error_code == 0, "Kafka lets a connection ask as often as it likes for a new id"
        assert await push(client, fresh) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        known = broker.node.client_metrics
        for number in range(1, 5):
            other = copy(asked)
            other.client_instance_id = bytes([number]) * 16
            other.subscription_id = subscription_id(["*"], 10_000, other.client_instance_id)
            assert await push(client, other) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await push(client, other, terminating=True) == 0
        other.client_instance_id = bytes(15) + b"\x09"
        other.subscription_id = subscription_id(["*"], 10_000, other.client_instance_id)
        assert await push(client, other, terminating=True) == ErrorCode.INVALID_REQUEST, "it said so already"
        assert len(known.pushes) == 2
        another = broker.connect()
        assert await push(another, await ask(another)) == 0


@pytest.mark.slow
@simulated
async def test_a_push_that_expands_to_very_many_values_is_refused_while_others_have_their_turn() -> None:
    async with SimBroker(config=ENABLED) as broker:
        client, other = broker.connect(), broker.connect()
        await subscribe(client, "s", metrics="*")
        asked = await ask(client)
        done: list[str] = []

        async def send() -> None:
            data = metrics(field(5, number(9, 0) * 500_000))
            assert len(compress(ZSTD, data)) < 500
            assert await push(client, asked, data, ZSTD) == ErrorCode.TELEMETRY_TOO_LARGE
            done.append("push")

        async def look() -> None:
            await other.call(ApiVersionsRequest("a", "1"), 3, ApiVersionsResponse)
            done.append("other")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(look)
        assert done == ["other", "push"]
        assert not broker.node.client_metrics.pushes


@simulated
async def test_the_expressions_of_a_subscription_are_bounded_together() -> None:
    async with SimBroker(config=ENABLED) as broker:
        client = broker.connect()
        for match in ("client_id=" + "\\pL" * 60, ",".join(["client_id=" + "\\pL" * 6] * 10)):
            change = AlterableConfig("match", 0, match)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(16, "s", [change])], False)
            [row] = (await client.call(request, 1, IncrementalAlterConfigsResponse)).responses
            assert row.error_code == ErrorCode.INVALID_CONFIG
            assert "60 Unicode classes and counted repetitions, the limit is 50" in row.error_message
