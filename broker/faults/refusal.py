"""An error in a response: of the whole request as Kafka's ``AbstractRequest.getErrorResponse``, or of some of its rows.

The error of some rows stands beside the results of the others, which are handled as usual.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oncelog.broker.faults.rows import Located, Row, Rows, fields_of, levels_of
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import API_VERSIONS_KEY
from oncelog.wire.schema import ZERO_UUID, Struct

if TYPE_CHECKING:
    from oncelog.broker.dispatch.api import Api
    from oncelog.broker.faults.active_rule import ActiveRule

ERROR_FIELDS = ("error_code", "partition_error_code")

ROWS_TOO = {
    "fetch": (7, 12),
    "metadata": (13, 13),
    "elect_leaders": (1, 2),
    "alter_partition_reassignments": (0, 1),
}
"""Versions in which an error of the whole request stands in its rows, too."""

UNKNOWN: dict[str, dict[str, Any]] = {
    "produce": {"base_offset": -1},
    "fetch": {"high_watermark": -1, "records": b""},
    "offset_fetch": {"committed_offset": -1},
    "find_coordinator": {"node_id": -1, "port": -1},
    "delete_records": {"low_watermark": -1},
    "init_producer_id": {"producer_epoch": -1},
    "describe_client_quotas": {"entries": None},
    "create_delegation_token": {
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "issue_timestamp_ms": -1,
        "expiry_timestamp_ms": -1,
        "max_timestamp_ms": -1,
    },
}
"""What stands beside an error, where it is not the field's default."""
METADATA_OF_NO_TOPICS_VERSION = 1
"""The first version of Metadata in which an empty list of topics means none, not all."""
JOIN_GROUP_NULLABLE_VERSION = 7
"""The first version of JoinGroup in which the protocol's name can be null."""


def copy_of(value: Any) -> Any:
    """Return a copy of a message, deep enough for a handler to change: bytes in a buffer are copied, too."""
    if isinstance(value, Struct):
        copy = object.__new__(type(value))
        for field in value.FIELDS:
            setattr(copy, field.name, copy_of(getattr(value, field.name)))
        return copy
    if isinstance(value, list):
        return [copy_of(item) for item in value]
    return memoryview(bytearray(value)) if isinstance(value, memoryview) else value


def shallow_copy(struct: Any) -> Any:
    """Return a copy whose fields are those of the struct."""
    copy = object.__new__(type(struct))
    for field in struct.FIELDS:
        setattr(copy, field.name, getattr(struct, field.name))
    return copy


class Places:
    """Where the responses of one version of an API have errors: ``depths``, 0 for the whole response."""

    def __init__(self, name: str, request: Any, response: Any, version: int) -> None:
        self.levels = levels_of(name, request, version)
        self.version = version
        self.structs: list[type[Struct] | None] = [response]
        """The class of the response's rows, by depth; None where the response has no list for them."""
        struct: type[Struct] = response
        for rows in self.levels:
            field = fields_of(struct, version).get(rows.response) if rows.response is not None else None
            if field is None:
                self.structs.append(None)
            else:
                struct = field.element
                self.structs.append(struct)
        self.fields = [
            next(
                (name for name in ERROR_FIELDS if struct is not None and name in fields_of(struct, version)),
                None,
            )
            for struct in self.structs
        ]
        """The field of the error, by depth."""

    def depth(self, at_least: int) -> int | None:
        """Return the outermost place at or below a depth, else the innermost one above it. None: there is no place."""
        places = [depth for depth, field in enumerate(self.fields) if field is not None]
        below = [depth for depth in places if depth >= at_least]
        return below[0] if below else places[-1] if places else None


@lru_cache(maxsize=256)
def _places(name: str, request: Any, response: Any, version: int) -> Places:
    return Places(name, request, response, version)


def places_of(api: Api, version: int) -> Places:
    return _places(api.handler.name, api.request, api.response, version)


class Refusal:
    """The error of a rule for a request: for all of it, or for the rows that the rule names."""

    def __init__(self, api: Api, version: int, located: Located, active: ActiveRule) -> None:
        depth = active.depth_in(located)
        self._name = api.handler.name
        self._response = api.response
        self._error: ErrorCode = active.rule.value
        self._places = places_of(api, version)
        self._located = located
        self._matches = active.matches
        self._is_for_all = depth == 0
        place = self._places.depth(depth)
        self._is_whole = not place
        """Whether the whole response has the error, or there is no place for it at all."""
        first, last = ROWS_TOO.get(self._name, (0, -1))
        if self._is_whole and first <= version <= last:
            place = self._places.depth(1)
        self._depth = place or 0
        """How deep the rows stand that get the error; 0: none do."""
        self._refused: set[int] = set()
        """The ids of these rows."""
        self.is_placed = False
        """Whether the response has the error."""
        self._find(located.whole, 0)

    def _find(self, row: Row, depth: int) -> None:
        if depth == self._depth:
            if self._is_for_all or any(map(self._matches, row.leaves())):
                self._refused.add(id(row))
            return
        for inner in row.inner:
            self._find(inner, depth + 1)

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing of the request is left to be handled."""
        if self._is_whole:
            return True
        if self._name == "metadata" and self._places.version >= METADATA_OF_NO_TOPICS_VERSION:
            return False  # the response tells of brokers, too: clients ignore one without any
        if self._is_for_all:
            return True
        if self._name == "fetch":
            return False  # its session goes on
        return self._is_empty(self._located.whole, 0)

    def _is_empty(self, row: Row, depth: int) -> bool:
        if row.is_all:
            return False
        if depth == self._depth:
            return id(row) in self._refused
        return all(self._is_empty(inner, depth + 1) for inner in row.inner)

    # -- what is handled

    def remaining(self) -> Any:
        """Return the request without the refused rows. A Fetch has all, and does not wait: an error ends a wait."""
        if self._name == "fetch":
            request = shallow_copy(self._located.whole.element)
            request.max_wait_ms = request.min_bytes = 0
            return request
        return self._without(self._located.whole, 0)

    def _without(self, row: Row, depth: int) -> Any:
        if depth == self._depth or row.is_all:
            return row.element
        copy = shallow_copy(row.element)
        kept = [inner for inner in row.inner if not self._is_empty(inner, depth + 1)]
        remaining = [self._without(inner, depth + 1) for inner in kept]
        setattr(copy, self._located.levels[depth].request, remaining)
        return copy

    # -- what is answered

    def response(self, handled: Any = None) -> Any:
        """Return the response: with nothing but the error, or with the rows of ``handled``, which changes."""
        response = self._response() if handled is None else handled
        if self._is_whole and self._places.fields[0] is not None:
            self._set_error(response, 0)
        if self._depth:
            self._merge(response, self._located.whole, 0)
        self._complete(response)
        return response

    def _complete(self, response: Any) -> None:
        """Set what Kafka says beside the error of a whole response."""
        if self._name == "fetch":
            response.session_id = response.session_id or self._located.whole.element.session_id
        elif self._name == "join_group" and self._places.version >= JOIN_GROUP_NULLABLE_VERSION:
            response.protocol_name = None
        elif self._name == "api_versions" and self._error is ErrorCode.UNSUPPORTED_VERSION:
            # With it, the client learns which version to ask with (KIP-511).
            from oncelog.wire.messages.api_versions import ApiVersion

            api = HANDLERS[API_VERSIONS_KEY]
            response.api_keys = [ApiVersion(api.api_key, api.min_version, api.max_version)]

    def _merge(self, response: Any, row: Row, depth: int) -> None:
        """Put the refused rows inside ``row`` among those of the response, in the order of the request."""
        rows = self._located.levels[depth]
        if rows.response is None:  # its inner rows stand where its own would
            together = Row(row.element, row.key, row.facts)
            together.inner = [inner for outer in row.inner for inner in outer.inner]
            self._merge(response, together, depth + 1)
            return
        handled: list[Any] = list(getattr(response, rows.response) or [])
        merged = []
        if row.is_all:
            merged = [self._refuse_told(told, row, rows, depth + 1) for told in handled]
            handled = []
        for inner in row.inner:
            found = next((told for told in handled if _is_same(told, inner.key)), None)
            if found is not None:
                handled = [told for told in handled if told is not found]
            if depth + 1 == self._depth:
                if id(inner) in self._refused:
                    found = self._error_row(inner.key, depth + 1)
            else:
                if found is None and self._has_refused(inner, depth + 1):
                    found = self._new_row(inner.key, depth + 1)
                if found is not None:
                    self._merge(found, inner, depth + 1)
            if found is not None:
                merged.append(found)
        setattr(response, rows.response, merged + handled)

    def _has_refused(self, row: Row, depth: int) -> bool:
        if depth == self._depth:
            return id(row) in self._refused
        return any(self._has_refused(inner, depth + 1) for inner in row.inner)

    def _refuse_told(self, told: Any, parent: Row, rows: Rows, depth: int) -> Any:
        """Refuse a row of the response whose request asked for all there are."""
        key = {name: getattr(told, name) for _, name in rows.key if hasattr(told, name)}
        names = dict(rows.key)
        facts = {
            fact: key[names[field]]
            for field, fact in rows.facts
            if names.get(field) in key and fact != "topic_id"
        }
        row = Row(None, key, parent.facts | facts)
        if depth == self._depth:
            return self._error_row(key, depth) if self._is_for_all or self._matches(row) else told
        row.is_all = True
        self._merge(told, row, depth)
        return told

    def _new_row(self, key: dict[str, Any], depth: int) -> Any:
        struct: Any = self._places.structs[depth]
        row = struct()
        for name, value in key.items():
            if hasattr(row, name):
                setattr(row, name, "" if value is None else value)
        return row

    def _error_row(self, key: dict[str, Any], depth: int) -> Any:
        row = self._new_row(key, depth)
        self._set_error(row, depth)
        return row

    def _set_error(self, row: Any, depth: int) -> None:
        field = self._places.fields[depth]
        assert field is not None
        setattr(row, field, int(self._error))
        for name, value in UNKNOWN.get(self._name, {}).items():
            if hasattr(row, name):
                setattr(row, name, value)
        self.is_placed = True


def _is_same(told: Any, key: dict[str, Any]) -> bool:
    """Whether a row of a response is the one with this key; a topic with an id is known by the id."""
    if key.get("topic_id", ZERO_UUID) != ZERO_UUID and hasattr(told, "topic_id"):
        return bool(told.topic_id == key["topic_id"])
    return all(getattr(told, name) == value for name, value in key.items() if name != "topic_id")
