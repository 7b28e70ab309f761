"""Requests of many rows: answered in parts, as they would be in one go, and others are served meanwhile."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from broker.handlers import parts
from broker.handlers.parts import PARTS, ROWS_AT_ONCE, ROWS_OF_PART, Parts
from broker.handlers.table import HANDLERS
from broker.log import slices
from tests.sim.ask import create_topic
from tests.sim.broker import SimBroker
from tests.sim.run import simulated
from wire.errors import ErrorCode
from wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from wire.schema import Field, Message, Struct

ROWS = ROWS_AT_ONCE + 2 * ROWS_OF_PART + 3
TOPIC_RESOURCE = 2
LATEST = -1


def messages(api_key: int) -> tuple[type[Message], type[Message], int]:
    """The request's class, the answer's, and the highest version."""
    handler = HANDLERS[api_key]
    module = import_module(f"wire.messages.{handler.name}")
    stem = "".join(word.capitalize() for word in handler.name.split("_"))
    return getattr(module, stem + "Request"), getattr(module, stem + "Response"), handler.max_version


def field_of(cls: type[Struct], name: str) -> Field:
    (found,) = [field for field in cls.FIELDS if field.name == name]
    return found


def row_of(array: Field, number: int) -> Any:
    """An element: every third is about the topic "here", its partitions are 0 to 2, others are unknown."""
    name = "here" if number % 3 == 0 else f"name-{number}"
    if not isinstance(array.element, type):
        return name if array.element is not None and array.element.kind == "string" else number % 5
    row = array.element()
    for field in row.FIELDS:
        if field.kind == "string" and field.name in ("name", "topic", "resource_name", "group_id"):
            setattr(row, field.name, name)
        if field.name in ("partition", "partition_index"):
            setattr(row, field.name, number % 5)
        if field.name == "resource_type":
            setattr(row, field.name, TOPIC_RESOURCE)
    return row


def large_request(cls: type[Message], where: Parts) -> Message:
    """Many rows, and where they are nested one with very many, none, and many with few."""
    array = field_of(cls, where.asked)
    request = cls()
    rows = [row_of(array, number) for number in range(ROWS)]
    if where.asked_inner:
        assert isinstance(array.element, type)
        inner = field_of(array.element, where.asked_inner)
        for number, row in enumerate(rows):
            count = ROWS if number == 3 else number % 3
            setattr(row, where.asked_inner, [row_of(inner, at) for at in range(count)])
    setattr(request, where.asked, rows)
    return request


def check(
    request: Message,
    answer_class: type[Message],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
    flush: str = "1000",
) -> Any:
    """The answer, which is that to the whole at once; another connection had its turn before it came."""
    monkeypatch.setattr(slices, "SLICE_STEPS_MAX", 1)
    found = []

    @simulated
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": flush}) as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "here", 3)
            await client.ask(request, version, answer_class)  # makes what it needs: internal topics
            await client.ask(ListGroupsRequest(), 0, ListGroupsResponse)

            await client.send(request, version)
            await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            assert client.unread() == 0
            in_parts = await client.receive(answer_class, version)

            with monkeypatch.context() as patched:
                patched.setattr(parts, "ROWS_AT_ONCE", 1_000_000)
                at_once = await client.ask(request, version, answer_class)
            assert in_parts == at_once
            found.append(in_parts)

    run()
    return found[0]


@pytest.mark.parametrize("api_key", PARTS, ids=lambda key: HANDLERS[key].name)
def test_an_answer_in_parts_is_the_answer(api_key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    request_class, answer_class, version = messages(api_key)
    request = large_request(request_class, PARTS[api_key])
    answer = check(request, answer_class, version, monkeypatch)
    answered = getattr(answer, PARTS[api_key].answered)
    assert len(answered) == ROWS
    if PARTS[api_key].answered_inner:
        assert len(getattr(answered[3], PARTS[api_key].answered_inner)) == ROWS


def test_list_offsets_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for twice is refused, wherever it stands in the request."""
    rows = [ListOffsetsPartition(number % ROWS, -1, LATEST) for number in range(ROWS + 2)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("here", rows), ListOffsetsTopic("here", rows[2:3])])
    answer = check(request, ListOffsetsResponse, 6, monkeypatch)
    twice, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [twice, twice, twice, *[unknown] * (ROWS - 3), twice]
    same = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("here", rows[:1] * ROWS)])
    answer = check(same, ListOffsetsResponse, 6, monkeypatch)
    assert [row.error_code for row in answer.topics[0].partitions] == [twice]


@pytest.mark.parametrize("flush", ["1", "1000"])
def test_markers_in_steps(flush: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [WritableTxnMarkerTopic("here", list(range(ROWS)))]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, False, topics, 0), WritableTxnMarker(8)])
    answer = check(request, WriteTxnMarkersResponse, 1, monkeypatch, flush)
    rows = answer.markers[0].topics[0].partitions
    assert [row.error_code for row in rows[:4]] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.partition_index for row in rows] == list(range(ROWS))
    assert [(row.producer_id, row.topics) for row in answer.markers[1:]] == [(8, [])]


def test_several_transactions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [AddPartitionsToTxnTransaction(f"id-{number}", 7, 0, True) for number in range(ROWS)]
    answer = check(AddPartitionsToTxnRequest(rows), AddPartitionsToTxnResponse, 4, monkeypatch)
    assert [row.transactional_id for row in answer.results_by_transaction] == [
        row.transactional_id for row in rows
    ]
