"""Responses that may be long are encoded in steps: the same bytes, and others have their turn meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from oncelog.broker.dispatch import api as apis
from oncelog.broker.handlers.chunked import ROWS_AT_ONCE
from oncelog.broker.handlers.table import HANDLERS, ApiRow
from oncelog.broker.net.held_bytes import HeldBytes
from oncelog.broker.net.writer import SEND_SOON_BYTES, ResponseWriter
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.transport import WOULD_BLOCK
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


class Taker:
    """A transport whose peer reads ``reads`` bytes of what is sent, and then nothing."""

    can_send_file = False

    def __init__(self, reads: int) -> None:
        self.sent = bytearray()
        self._left = reads

    def send(self, data: bytes | memoryview, *, more: bool = False) -> int:
        taken = min(len(data), self._left)
        self._left -= taken
        self.sent += data[:taken]
        return taken or WOULD_BLOCK

    async def wait_writable(self) -> None:
        await trio.sleep_forever()


def unread(reads: int = 0) -> tuple[ResponseWriter, bytearray, HeldBytes]:
    """Return a writer, what its peer has read, and the bytes that are held."""
    transport: Any = Taker(reads)
    held = HeldBytes(2**40, "responses")
    files: Any = None
    return ResponseWriter(transport, files, held, lambda reason: None), transport.sent, held


@pytest.mark.parametrize("version", [1, 4])
def test_a_long_response_has_the_same_bytes_in_steps(version: int) -> None:
    api = apis.Api(HANDLERS[DESCRIBE_CONFIGS])
    at_once = bytearray(b"before")
    writer, sent, _ = unread()
    in_steps = writer.out
    in_steps += b"before"
    api.encode_response(version, 77, long_response(), at_once, [])
    lengths = [len(in_steps)]

    async def run() -> None:
        async def watch() -> None:
            while True:
                lengths.append(len(in_steps))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            size = await api.encode_in_steps(version, 77, long_response(), writer, apis.LargeResponses())
            assert size == len(at_once) - len(b"before")
            assert sent == b""
            nursery.cancel_scope.cancel()

    deterministic(run, slice_steps=1)
    assert in_steps == at_once
    assert max(after - before for before, after in pairwise(lengths)) < 4 * STEP_BYTES


def test_a_very_long_response_is_sent_as_the_client_reads() -> None:
    limits = apis.LargeResponses(whole_bytes_max=50_000)
    api = apis.Api(HANDLERS[DESCRIBE_CONFIGS])
    at_once = bytearray(b"before")
    api.encode_response(4, 77, long_response(), at_once, [])

    async def run(reads: int) -> bytearray:
        writer, sent, held = unread(reads)
        writer.out += b"before"
        with trio.move_on_after(1):
            await api.encode_in_steps(4, 77, long_response(), writer, limits)
            assert held.used == 0
        assert len(writer.out) < SEND_SOON_BYTES + 4 * STEP_BYTES
        return sent + writer.out if reads > len(at_once) else sent

    assert deterministic(lambda: run(10**9), 0) == at_once
    assert deterministic(lambda: run(100_000), 0) == at_once[:100_000]


def test_an_answer_that_would_be_too_long_closes_the_connection() -> None:
    limits = apis.LargeResponses(bytes_max=100_000)
    api = apis.Api(HANDLERS[DESCRIBE_CONFIGS])

    async def run() -> None:
        with pytest.raises(CloseConnection, match="describe_configs asks for more than 100000 bytes"):
            await api.encode_in_steps(4, 77, long_response(), unread()[0], limits)

    deterministic(run, 0)


@simulated
async def test_a_connection_encodes_what_was_answered_in_steps_so() -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "here")
        asked = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "here", None)] * (ROWS_AT_ONCE + 1))
        answer = await client.call(asked, 4, DescribeConfigsResponse)
        assert len(answer.results) == ROWS_AT_ONCE + 1
        broker.node.dispatcher.interception.large_responses.bytes_max = 100_000
        with pytest.raises(ConnectionEndedError):
            await client.call(asked, 4, DescribeConfigsResponse)
        await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)


@pytest.mark.parametrize("row", HANDLERS.values(), ids=lambda row: row.name)
def test_an_error_of_the_whole_request_fits_every_version(row: ApiRow) -> None:
    """Its place may come with a later version; a request without rows then gets a response without an error."""
    api = apis.Api(row)
    for version in range(row.min_version, row.max_version + 1):
        request: Any = api.request(**({"acks": 1} if row.name == "produce" else {}))
        response: Any = api.refuse(request, version, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"))
        again: Any = api.response.decode(response.encode(version), version)
        assert getattr(again, "error_code", 0) in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_produce_that_wants_no_response_closes_the_connection() -> None:
    api = apis.Api(HANDLERS[PRODUCE])
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(CloseConnection, match="produce without acks cannot be answered"):
        api.refuse(ProduceRequest(acks=0), 9, error)
