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
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from wire.schema import Field, Message, Struct

ROWS = ROWS_AT_ONCE + 2 * ROWS_OF_PART + 3
TOPIC_RESOURCE = 2


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


@pytest.mark.parametrize("api_key", PARTS, ids=lambda key: HANDLERS[key].name)
def test_an_answer_in_parts_is_the_answer(api_key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_STEPS_MAX", 1)

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "here", 3)
            request_class, answer_class, version = messages(api_key)
            request = large_request(request_class, PARTS[api_key])
            await client.ask(request, version, answer_class)  # makes what it needs: internal topics
            await client.ask(ListGroupsRequest(), 0, ListGroupsResponse)

            await client.send(request, version)
            await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            assert client.unread() == 0  # the others had their turn first
            in_parts = await client.receive(answer_class, version)

            monkeypatch.setattr(parts, "ROWS_AT_ONCE", 1_000_000)
            at_once = await client.ask(request, version, answer_class)
            assert in_parts == at_once
            answered = getattr(in_parts, PARTS[api_key].answered)
            assert len(answered) == ROWS
            if PARTS[api_key].answered_inner:
                assert len(getattr(answered[3], PARTS[api_key].answered_inner)) == ROWS

    run()
