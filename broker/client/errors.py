"""`AuthenticationError`; the errors in all fields of a response (Kafka: ``AbstractResponse.errorCounts``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import Message, Struct


class AuthenticationError(KafkaError):
    """The broker refuses who the client is, or the client who the broker is (Kafka: ``AuthenticationException``).

    Nothing but other settings will change that. A ``code`` of None is that of a failed TLS handshake, which has none of
    its own in Kafka either.
    """

    def __init__(self, code: ErrorCode | None, message: str | None = None) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code, message)


def to_error_code(code: int) -> ErrorCode:
    """Return the code, or UNKNOWN_SERVER_ERROR for an unknown one (Kafka: ``Errors.forCode``)."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_codes(response: Message) -> tuple[ErrorCode, ...]:
    """Return the distinct errors of a response in the order of its fields; without errors, an empty tuple."""
    return tuple(dict.fromkeys(map(to_error_code, _codes(response))))


def _codes(struct: Struct) -> Iterator[int]:
    kind: Any = type(struct)
    codes, structs = _error_fields(kind)
    for name in codes:
        if code := getattr(struct, name):
            yield code
    for name in structs:
        value = getattr(struct, name)
        for nested in value if isinstance(value, list) else () if value is None else (value,):
            yield from _codes(nested)


@cache
def _error_fields(cls: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fields that are error codes, and of those with structs that contain error codes."""
    codes = tuple(field.name for field in cls.FIELDS if field.name.endswith("error_code"))
    structs = tuple(
        field.name
        for field in cls.FIELDS
        if isinstance(field.element, type)
        and issubclass(field.element, Struct)
        and any(_error_fields(field.element))
    )
    return codes, structs
