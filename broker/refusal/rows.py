"""The rows of a request: what it asks row by row, and where its response says the result of a row.

The table of APIs (`ApiRow.rows`) pairs each list of a request with a list of its response.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.rights import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from oncelog.broker.handlers.table import BY_NAME, ELEMENT, GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID
from oncelog.wire.schema import Struct
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncelog.broker.handlers.table import Rows
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

FACTS = (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID)
"""The facts about a request's rows by which a rule can filter. The table also has ``topic_id``, ``resource`` and
``key``, from which `_facts` derives these."""

TOPIC_CONFIG, GROUP_CONFIG = 2, 32
"""Resource types of the requests about configurations (Kafka: ``ConfigResource.Type``)."""

TOP_LEVEL_FACTS = {
    "group_id": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
}


def fields_of(struct: type[Struct], version: int) -> dict[str, Any]:
    """Return the fields that a struct has in this version, by name."""
    return {field.name: field for field in struct.FIELDS if field.versions[0] <= version <= field.versions[1]}


@lru_cache(maxsize=256)
def levels_of(name: str, request: Any, version: int) -> tuple[Rows, ...]:
    """Return the lists of rows that requests of this version have, the outermost first."""
    present = fields_of(request, version)
    found = next((rows for rows in BY_NAME[name].rows if rows.request in present), None)
    levels = []
    while found is not None:
        levels.append(found)
        found = found.inner
    return tuple(levels)


@lru_cache(maxsize=256)
def depths_of(name: str, request: Any, version: int) -> dict[str, int]:
    """Return where requests of this version say each of `FACTS`, if they do: 0 for the whole request, 1 for its
    outermost rows, and so on.
    """
    depths: dict[str, int] = {}
    present = fields_of(request, version)
    for field, fact in TOP_LEVEL_FACTS.items():
        if field in present:
            depths.setdefault(fact, 0)
    if name == "find_coordinator":
        depth = 0 if "key" in present else 1
        depths.update({GROUP: depth, TRANSACTIONAL_ID: depth})
    for depth, rows in enumerate(levels_of(name, request, version), 1):
        for _, fact in rows.facts:
            if fact == "resource":
                depths.update({TOPIC: depth, GROUP: depth})
            elif fact in FACTS:
                depths.setdefault(fact, depth)
            elif fact == "topic_id":
                depths.setdefault(TOPIC, depth)
    return depths


class Row:
    """A row of a request. ``inner`` holds the rows inside it, in their order."""

    __slots__ = ("element", "facts", "inner", "is_all", "key")

    def __init__(self, element: Any, key: dict[str, Any], facts: dict[str, Any]) -> None:
        self.element = element
        self.key = key
        """The fields of the response's row that repeat fields of the request's, with their values."""
        self.facts = facts
        """What the row names, by kind (`FACTS`): also what the rows around it and the request name."""
        self.inner: list[Row] = []
        self.is_all = False
        """Whether its list of inner rows is null: then the row stands for all."""

    def leaves(self) -> Iterable[Row]:
        """Return the innermost rows."""
        if not self.inner:
            yield self
        for row in self.inner:
            yield from row.leaves()


class RequestRows:
    """The rows of a request, as a tree. ``whole`` stands for the request itself; its inner rows are the outermost."""

    __slots__ = ("depths", "levels", "whole")

    def __init__(self, levels: tuple[Rows, ...], depths: dict[str, int], whole: Row) -> None:
        self.levels = levels
        self.depths = depths
        self.whole = whole


def rows_of_request(
    name: str, request: Any, version: int, topic_name: Callable[[Uuid], str | None]
) -> RequestRows:
    """Return the rows of a request. ``topic_name`` gives the name of a topic id, None for an unknown one."""
    return finish(rows_of_request_in_steps(name, request, version, topic_name))


def rows_of_request_in_steps(
    name: str, request: Any, version: int, topic_name: Callable[[Uuid], str | None]
) -> Steps[RequestRows]:
    """Do as `rows_of_request`, a row at each step."""
    kind: Any = type(request)
    levels = levels_of(name, kind, version)
    depths = depths_of(name, kind, version)
    facts: dict[str, Any] = {}
    present = fields_of(kind, version)
    for field, fact in TOP_LEVEL_FACTS.items():
        if field in present:
            facts[fact] = getattr(request, field)
    if name == "find_coordinator" and "key" in present:
        facts |= _coordinator_key(request, request.key)
    whole = Row(request, {}, facts)
    yield from _add_rows(whole, levels, request, topic_name)
    return RequestRows(levels, depths, whole)


def _add_rows(
    parent: Row, levels: tuple[Rows, ...], request: Any, topic_name: Callable[[Uuid], str | None]
) -> Iterator[None]:
    if not levels:
        return
    rows = levels[0]
    elements = getattr(parent.element, rows.request)
    if elements is None:
        parent.is_all = True
        return
    for element in elements:
        row = Row(element, key_of(rows, element), parent.facts | _facts(rows, element, request, topic_name))
        yield from _add_rows(row, levels[1:], request, topic_name)
        parent.inner.append(row)
        yield


def key_of(rows: Rows, element: Any) -> dict[str, Any]:
    """Return the fields of the response's row that repeat fields of a request's row, with their values."""
    return {
        response_field: _value(element, field)
        for field, response_field in rows.key
        if field == ELEMENT or hasattr(element, field)
    }


def _value(element: Any, field: str) -> Any:
    return element if field == ELEMENT else getattr(element, field)


def _facts(
    rows: Rows, element: Any, request: Any, topic_name: Callable[[Uuid], str | None]
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for field, fact in rows.facts:
        if fact == "topic_id":
            if not facts.get(TOPIC) and hasattr(element, field):
                facts[TOPIC] = topic_name(element.topic_id)
        elif fact == "resource":
            kind = {TOPIC_CONFIG: TOPIC, GROUP_CONFIG: GROUP}.get(element.resource_type)
            if kind is not None:
                facts[kind] = element.resource_name
        elif fact == "key":
            facts |= _coordinator_key(request, element)
        else:
            facts[fact] = _value(element, field)
    return facts


def _coordinator_key(request: Any, key: str) -> dict[str, Any]:
    kind = {GROUP_KEY_TYPE: GROUP, TRANSACTION_KEY_TYPE: TRANSACTIONAL_ID}.get(request.key_type)
    return {kind: key} if kind is not None else {}
