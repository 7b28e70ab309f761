"""Responses that may be long are encoded in steps: the same bytes, and others have their turn meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from oncelog.broker import slices
from oncelog.broker.dispatch import api as apis
from oncelog.broker.handlers.chunked import ROWS_AT_ONCE
from oncelog.broker.handlers.table import HANDLERS, Handler
from oncelog.broker.request import CloseConnection
from oncelog.wire.encode_source import STEP_BYTES
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from oncelog.wire.messages.produce import ProduceRequest
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import deterministic, simulated

PRODUCE, DESCRIBE_CONFIGS = 0, 32
TOPIC = 2


def long_response() -> DescribeConfigsResponse:
    """Some 200 kB, of which a resource has much more than a step."""
    synonyms = [DescribeConfigsSynonym("other", "5", 4)]
    rows = [
        DescribeConfigsResourceResult(f"key-{number}", "x" * 30, synonyms=synonyms) for number in range(900)
    ]
    return DescribeConfigsResponse(
        5, [DescribeConfigsResult(0, "", TOPIC, name, rows) for name in ("a", "b", "c", "d")]
    )


@pytest.mark.parametrize("version", [1, 4])
def test_a_long_response_has_the_same_bytes_in_steps(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_STEPS_MAX", 1)
    api = apis.Api(HANDLERS[DESCRIBE_CONFIGS])
    at_once, in_steps = bytearray(b"before"), bytearray(b"before")
    api.encode_response(version, 77, long_response(), at_once, [])
    lengths = [len(in_steps)]

    async def run() -> None:
        async def watch() -> None:
            while True:
                lengths.append(len(in_steps))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await api.encode_in_steps(version, 77, long_response(), in_steps)
            nursery.cancel_scope.cancel()

    deterministic(run, 0)
    assert in_steps == at_once
    assert max(after - before for before, after in pairwise(lengths)) < 4 * STEP_BYTES


def test_an_answer_that_would_be_too_long_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apis, "RESPONSE_BYTES_MAX", 100_000)
    api = apis.Api(HANDLERS[DESCRIBE_CONFIGS])

    async def run() -> None:
        with pytest.raises(CloseConnection, match="describe_configs asks for more than 100000 bytes"):
            await api.encode_in_steps(4, 77, long_response(), bytearray())

    deterministic(run, 0)


@simulated
async def test_a_connection_encodes_what_was_answered_in_steps_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "here")
        asked = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "here", None)] * (ROWS_AT_ONCE + 1))
        answer = await client.call(asked, 4, DescribeConfigsResponse)
        assert len(answer.results) == ROWS_AT_ONCE + 1
        monkeypatch.setattr(apis, "RESPONSE_BYTES_MAX", 100_000)
        with pytest.raises(ConnectionEndedError):
            await client.call(asked, 4, DescribeConfigsResponse)
        await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.name)
def test_an_error_of_the_whole_request_fits_every_version(handler: Handler) -> None:
    """Its place may come with a later version; a request without rows then gets a response without an error."""
    api = apis.Api(handler)
    for version in range(handler.min_version, handler.max_version + 1):
        request: Any = api.request(**({"acks": 1} if handler.name == "produce" else {}))
        response: Any = api.refuse(request, version, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"))
        again: Any = api.response.decode(response.encode(version), version)
        assert getattr(again, "error_code", 0) in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_produce_that_wants_no_response_closes_the_connection() -> None:
    api = apis.Api(HANDLERS[PRODUCE])
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(CloseConnection, match="produce without acks cannot be answered"):
        api.refuse(ProduceRequest(acks=0), 9, error)
