"""The response to a request that fails as a whole (Kafka: ``AbstractRequest.getErrorResponse``), for every API."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.table import BY_NAME
from oncelog.broker.refusal.rows import fields_of, key_of, levels_of
from oncelog.wire.errors import ErrorCode
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.wire.errors import KafkaError
    from oncelog.wire.schema import Struct
    from oncelog.wire.steps import Steps

ERROR_FIELD_NAMES = ("error_code", "partition_error_code")

JOIN_GROUP_NULLABLE_VERSION = 7
"""The first version of JoinGroup in which the protocol's name can be null."""
TOKEN_REQUESTER_VERSION = 3
"""The first version of CreateDelegationToken whose response names who has asked (KIP-373)."""


class ErrorFields:
    """The error fields of an API's responses in one version. Its lists are by depth: 0 is the response itself, 1 its
    rows, and so on.
    """

    def __init__(self, name: str, request: Any, response: Any, version: int) -> None:
        self.name = name
        self.api_row = BY_NAME[name]
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
                (
                    name
                    for name in ERROR_FIELD_NAMES
                    if struct is not None and name in fields_of(struct, version)
                ),
                None,
            )
            for struct in self.structs
        ]
        """The field of the error, by depth."""
        self.have_message = [
            struct is not None
            and self.api_row.has_error_message
            and "error_message" in fields_of(struct, version)
            for struct in self.structs
        ]
        """Whether Kafka puts the error's message beside the error, by depth."""

    def depth(self, at_least: int) -> int | None:
        """Return the depth of the outermost error field at ``at_least`` or deeper, else of the innermost one; None if
        there is none.
        """
        depths = [depth for depth, field in enumerate(self.fields) if field is not None]
        deeper = [depth for depth in depths if depth >= at_least]
        return deeper[0] if deeper else depths[-1] if depths else None

    def rows_depth(self) -> int:
        """Return the depth of the rows that get the error when the whole request fails; 0: no row gets it."""
        depth = self.depth(0)
        first, last = self.api_row.error_in_rows
        if not depth and first <= self.version <= last:
            depth = self.depth(1)
        return depth or 0

    def new_row(self, key: dict[str, Any], depth: int) -> Any:
        """Return a row of the response with the fields of ``key``, as far as it has them."""
        struct: Any = self.structs[depth]
        row = struct()
        for name, value in key.items():
            if hasattr(row, name):
                setattr(row, name, "" if value is None else value)
        return row

    def set_error(self, row: Any, depth: int, error: KafkaError) -> None:
        """Put an error into a row of the response, or for depth 0 into the response itself."""
        field = self.fields[depth]
        assert field is not None
        setattr(row, field, int(error.code))
        if self.have_message[depth]:
            row.error_message = _message(error)
        for name, value in self.api_row.beside_error.items():
            if hasattr(row, name):
                setattr(row, name, value)


@lru_cache(maxsize=256)
def error_fields_of(name: str, request: Any, response: Any, version: int) -> ErrorFields:
    """Return the error fields of an API's version, whose messages are of these classes."""
    return ErrorFields(name, request, response, version)


def error_response(error_fields: ErrorFields, request: Any, error: KafkaError) -> Any:
    """Return a response with nothing but ``error``; see `error_response_in_steps`."""
    return finish(error_response_in_steps(error_fields, request, error))


def error_response_in_steps(error_fields: ErrorFields, request: Any, error: KafkaError) -> Steps[Any]:
    """Make a response with nothing but ``error``, a row at each step; one without it, if this version has no error
    field. The generator returns it.

    ``request`` is None where it could not be decoded (ApiVersions of an unknown version).
    """
    kind: Any = error_fields.structs[0]
    response = kind()
    if error_fields.fields[0] is not None:
        error_fields.set_error(response, 0, error)
    depth = error_fields.rows_depth()
    if depth:
        yield from _add_rows(error_fields, response, request, 0, depth, error)
    set_fields_beside_error(error_fields, response, request, error.code)
    yield from _add_special_rows(error_fields, response, request, error)
    return response


def _message(error: KafkaError) -> str | None:
    """Return the message that clients may read: Kafka keeps that of a defect to itself (``ApiError.fromThrowable``)."""
    return None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message


def _add_rows(
    error_fields: ErrorFields, response: Any, asked: Any, depth: int, error_depth: int, error: KafkaError
) -> Iterator[None]:
    """Add the rows at ``error_depth``, with the error, and those around them. ``depth`` is that of ``asked``, whose
    rows are added.
    """
    rows = error_fields.levels[depth]
    elements = getattr(asked, rows.request) or ()
    if error_fields.name == "write_txn_markers" and depth == 0:  # Kafka has one row per producer, the last
        elements = {marker.producer_id: marker for marker in elements}.values()
    added = None if rows.response is None else getattr(response, rows.response)
    for element in elements:
        if added is None:  # the response has no list for these rows: it has their inner rows directly
            yield from _add_rows(error_fields, response, element, depth + 1, error_depth, error)
            continue
        row = error_fields.new_row(key_of(rows, element), depth + 1)
        if depth + 1 == error_depth:
            error_fields.set_error(row, error_depth, error)
        else:
            yield from _add_rows(error_fields, row, element, depth + 1, error_depth, error)
        added.append(row)
        yield


def set_fields_beside_error(error_fields: ErrorFields, response: Any, request: Any, code: ErrorCode) -> None:
    """Set the fields that Kafka sets beside the error, of a response or of some of its rows."""
    name, version = error_fields.name, error_fields.version
    if name == "fetch":
        response.session_id = response.session_id or request.session_id
    elif name == "join_group" and version >= JOIN_GROUP_NULLABLE_VERSION:
        response.protocol_name = None
    elif name == "create_delegation_token" and version >= TOKEN_REQUESTER_VERSION:
        response.token_requester_principal_type = response.principal_type
        response.token_requester_principal_name = response.principal_name
    elif name == "api_versions" and code is ErrorCode.UNSUPPORTED_VERSION:
        # With it, the client learns which version to ask with (KIP-511).
        from oncelog.wire.messages.api_versions import ApiVersion

        api = BY_NAME[name]
        response.api_keys = [ApiVersion(api.api_key, api.min_version, api.max_version)]


def _add_special_rows(
    error_fields: ErrorFields, response: Any, request: Any, error: KafkaError
) -> Iterator[None]:
    """Add the rows that the API table does not describe: Kafka derives them from other fields of the request."""
    name = error_fields.name
    kind: Any = error_fields.structs[0]
    if name == "alter_user_scram_credentials":
        # A user may have deletions and upsertions: Kafka has one row for all.
        users = {one.name for one in (*request.deletions, *request.upsertions)}
        row_kind: Any = fields_of(kind, 0)["results"].element
        response.results = []  # those of the upsertions alone
        for user in sorted(users):
            response.results.append(row_kind(user, error.code, _message(error)))
            yield
    elif name == "describe_user_scram_credentials":
        row_kind = fields_of(kind, 0)["results"].element
        response.results = []
        for _ in request.users or ():
            response.results.append(row_kind("", error.code, _message(error)))
            yield
    elif name == "list_partition_reassignments":
        topic_kind: Any = fields_of(kind, 0)["topics"].element
        partition_kind: Any = fields_of(topic_kind, 0)["partitions"].element
        response.topics = []
        for topic in request.topics or ():
            row = topic_kind(topic.name)
            response.topics.append(row)
            for index in topic.partition_indexes:
                row.partitions.append(partition_kind(index))
                yield
            yield
