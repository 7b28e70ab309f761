"""An error in a response: of the whole request (`error_response`), or of some of its rows.

The error of some rows stands beside the results of the others, which are handled as usual. Fault rules and a proxy use
it. The broker's handlers make the rows of denied resources themselves.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from oncelog.broker.handlers.table import Rows
from oncelog.broker.refusal.error_response import (
    error_fields_of,
    error_response_in_steps,
    set_fields_beside_error,
)
from oncelog.broker.refusal.rows import RequestRows, Row
from oncelog.wire.schema import ZERO_UUID, deep_copy
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from oncelog.broker.dispatch.api import Api
    from oncelog.wire.errors import KafkaError
    from oncelog.wire.steps import Steps

METADATA_OF_NO_TOPICS_VERSION = 1
"""The first version of Metadata in which an empty list of topics means none, not all."""


def copy_of(message: Any) -> Any:
    """Return a copy of a message, deep enough for a handler to change: bytes in a buffer are copied, too."""
    return deep_copy(message, lambda view: memoryview(bytearray(view)))


class RowSelector(Protocol):
    """Says which rows of a request are refused: a rule names them, or the client lacks a right."""

    def depth_in(self, rows: RequestRows) -> int:
        """Return the depth of the rows that it selects from; 0: it selects the whole request."""

    def matches_row(self, row: Row) -> bool:
        """Whether a row is refused. A fault rule matches a row that stands for all rows (`Row.is_all`). A missing right
        does not: `oncelog.broker.proxy.rights_in_responses` filters that response.
        """


class Refusal:
    """An error for a request, or for the selected ones of its rows."""

    def __init__(
        self, api: Api, version: int, rows: RequestRows, selector: RowSelector, error: KafkaError
    ) -> None:
        self._begin(api, version, rows, selector, error)
        for _ in self._find(rows.whole, 0):
            pass

    @classmethod
    def in_steps(
        cls, api: Api, version: int, rows: RequestRows, selector: RowSelector, error: KafkaError
    ) -> Steps[Refusal]:
        """Make a refusal, a row at each step."""
        refusal = cls.__new__(cls)
        refusal._begin(api, version, rows, selector, error)
        yield from refusal._find(rows.whole, 0)
        return refusal

    def _begin(
        self, api: Api, version: int, rows: RequestRows, selector: RowSelector, error: KafkaError
    ) -> None:
        depth = selector.depth_in(rows)
        self._name = api.row.name
        self._response = api.response
        self._error = error
        self._error_fields = error_fields_of(self._name, api.request, api.response, version)
        self._rows = rows
        self._matches = selector.matches_row
        self._selects_all = depth == 0
        error_depth = self._error_fields.depth(depth)
        self._is_about_rows = bool(error_depth)
        """Whether only rows have the error. Otherwise the whole response has it, in some versions beside its rows
        (`ApiRow.error_in_rows`), or there is no place for it.
        """
        self._depth = error_depth or self._error_fields.rows_depth()
        """How deep the rows stand that get the error; 0: none do."""
        self._refused: set[int] = set()
        """The ids of these rows."""
        self._has_other_rows = False
        """Whether the request has rows that are not refused."""
        self.is_placed = False
        """Whether the response has the error."""

    def _find(self, row: Row, depth: int) -> Iterator[None]:
        self._has_other_rows |= row.is_all  # it may stand for rows that are not refused
        if depth == self._depth:
            if self._selects_all or any(map(self._matches, row.leaves())):
                self._refused.add(id(row))
            else:
                self._has_other_rows = True
            yield
            return
        for inner in row.inner:
            yield from self._find(inner, depth + 1)

    @property
    def leaves_nothing(self) -> bool:
        """Whether the handler has nothing to do: no row is left, and the response needs nothing else of it."""
        if not self._is_about_rows:
            return True
        if self._name == "metadata" and self._error_fields.version >= METADATA_OF_NO_TOPICS_VERSION:
            return False  # the response tells of brokers, too: clients ignore one without any
        if self._selects_all:
            return True
        if self._name in ("fetch", "share_fetch"):
            return False  # its session goes on
        return not self._has_other_rows

    def _is_empty(self, row: Row, depth: int) -> bool:
        if row.is_all:
            return False
        if depth == self._depth:
            return id(row) in self._refused
        return all(self._is_empty(inner, depth + 1) for inner in row.inner)

    # -- the remaining request

    def remaining(self) -> Any:
        """Return the request without the refused rows. A Fetch keeps all its rows, but does not wait: an error ends the
        wait. A ShareFetch does not wait either, and acquires no records: its session may have the refused rows from
        before, and the error would stand in place of their records.
        """
        return finish(self.remaining_in_steps())

    def remaining_in_steps(self) -> Steps[Any]:
        """Do as `remaining`, a row at each step."""
        if self._name == "fetch":
            request = copy(self._rows.whole.element)
            request.max_wait_ms = request.min_bytes = 0
            return request
        if self._name == "share_fetch":
            request = copy((yield from self._without(self._rows.whole, 0)))
            request.max_wait_ms = request.min_bytes = request.max_records = 0
            return request
        return (yield from self._without(self._rows.whole, 0))

    def _without(self, row: Row, depth: int) -> Steps[Any]:
        if depth == self._depth or row.is_all:
            return row.element
        fewer = copy(row.element)
        remaining = []
        for inner in row.inner:
            if not self._is_empty(inner, depth + 1):
                remaining.append((yield from self._without(inner, depth + 1)))
            yield
        setattr(fewer, self._rows.levels[depth].request, remaining)
        return fewer

    # -- the response

    def response(self, handled: Any = None) -> Any:
        """Return the response: with nothing but the error, or with the rows of ``handled``, which changes."""
        return finish(self.response_in_steps(handled))

    def response_in_steps(self, handled: Any = None) -> Steps[Any]:
        """Do as `response`, a row at each step."""
        request = self._rows.whole.element
        if handled is None and (not self._is_about_rows or self._selects_all):
            self.is_placed = bool(self._error_fields.depth(0) == 0 or (self._depth and self._refused))
            return (yield from error_response_in_steps(self._error_fields, request, self._error))
        response = self._response() if handled is None else handled
        if not self._is_about_rows and self._error_fields.fields[0] is not None:
            self._set_error(response, 0)
        if self._depth:
            yield from self._merge(response, self._rows.whole, 0)
        set_fields_beside_error(self._error_fields, response, request, self._error.code)
        return response

    def _merge(self, response: Any, row: Row, depth: int) -> Iterator[None]:
        """Put the refused rows inside ``row`` among those of the response, in the order of the request."""
        rows = self._rows.levels[depth]
        if rows.response is None:  # the response has no list for these rows: it has their inner rows directly
            together = Row(row.element, row.key, row.facts)
            together.inner = [inner for outer in row.inner for inner in outer.inner]
            yield from self._merge(response, together, depth + 1)
            return
        handled: list[Any] = list(getattr(response, rows.response) or [])
        merged = []
        if row.is_all:
            for response_row in handled:
                merged.append((yield from self._refuse_response_row(response_row, row, rows, depth + 1)))
                yield
            handled = []
        left = _ResponseRows(handled)
        for inner in row.inner:
            yield
            found = left.take(inner.key)
            if depth + 1 == self._depth:
                if id(inner) in self._refused:
                    found = self._error_row(inner.key, depth + 1)
            else:
                if found is None and self._has_refused(inner, depth + 1):
                    found = self._error_fields.new_row(inner.key, depth + 1)
                if found is not None:
                    yield from self._merge(found, inner, depth + 1)
            if found is not None:
                merged.append(found)
        setattr(response, rows.response, merged + left.rest())

    def _has_refused(self, row: Row, depth: int) -> bool:
        if depth == self._depth:
            return id(row) in self._refused
        return any(self._has_refused(inner, depth + 1) for inner in row.inner)

    def _refuse_response_row(self, response_row: Any, parent: Row, rows: Rows, depth: int) -> Steps[Any]:
        """Refuse a row of the response to a request for all, if it is selected."""
        key = {name: getattr(response_row, name) for _, name in rows.key if hasattr(response_row, name)}
        names = dict(rows.key)
        facts = {
            fact: key[names[field]]
            for field, fact in rows.facts
            if names.get(field) in key and fact != "topic_id"
        }
        row = Row(None, key, parent.facts | facts)
        if depth == self._depth:
            return self._error_row(key, depth) if self._selects_all or self._matches(row) else response_row
        row.is_all = True
        yield from self._merge(response_row, row, depth)
        return response_row

    def _error_row(self, key: dict[str, Any], depth: int) -> Any:
        row = self._error_fields.new_row(key, depth)
        self._set_error(row, depth)
        return row

    def _set_error(self, row: Any, depth: int) -> None:
        self._error_fields.set_error(row, depth, self._error)
        self.is_placed = True


class _ResponseRows:
    """The rows of a response, each of which is taken once, by its key; a topic with an id is known by the id."""

    __slots__ = ("_by_id", "_by_names", "_rows")

    def __init__(self, rows: list[Any]) -> None:
        self._rows = {id(row): row for row in rows}
        """The rows that were not taken, by their identity."""
        self._by_id: dict[Any, deque[Any]] | None = None
        self._by_names: dict[Hashable, deque[Any]] | None = None
        """The rows by the values of a key's fields; all keys of a list have the same fields."""

    def take(self, key: dict[str, Any]) -> Any:
        """Return the first row with this key that was not taken, None if there is none."""
        if not self._rows:
            return None
        if key.get("topic_id", ZERO_UUID) != ZERO_UUID and hasattr(
            next(iter(self._rows.values())), "topic_id"
        ):
            if self._by_id is None:
                self._by_id = self._index(lambda row: row.topic_id)
            same = self._by_id.get(key["topic_id"])
        else:
            names = [name for name in key if name != "topic_id"]
            if self._by_names is None:
                self._by_names = self._index(lambda row: _hashable([getattr(row, name) for name in names]))
            same = self._by_names.get(_hashable([key[name] for name in names]))
        while same:
            row = same.popleft()
            if self._rows.pop(id(row), None) is not None:
                return row
        return None

    def rest(self) -> list[Any]:
        """Return the rows that were not taken."""
        return list(self._rows.values())

    def _index(self, value_of: Callable[[Any], Hashable]) -> dict[Hashable, deque[Any]]:
        index: dict[Hashable, deque[Any]] = {}
        for row in self._rows.values():
            index.setdefault(value_of(row), deque()).append(row)
        return index


def _hashable(values: list[Any]) -> Hashable:
    """Return a key for equal values; an entity of a quota is a list of structs."""
    return tuple(repr(value) if isinstance(value, list) else value for value in values)
