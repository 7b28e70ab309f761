"""The errors that a response reports, in whichever fields: what Kafka's ``AbstractResponse.errorCounts`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import Message, Struct


def to_error_code(code: int) -> ErrorCode:
    """UNKNOWN_SERVER_ERROR for a code that is not known here, as Kafka's ``Errors.forCode``."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_codes(response: Message) -> tuple[ErrorCode, ...]:
    """Every error in the response, each once, in the order in which they come; none: all went well."""
    return tuple(dict.fromkeys(map(to_error_code, _codes(response))))


def _codes(struct: Struct) -> Iterator[int]:
    kind: Any = type(struct)
    codes, structs = _places(kind)
    for name in codes:
        if code := getattr(struct, name):
            yield code
    for name in structs:
        value = getattr(struct, name)
        for one in value if isinstance(value, list) else () if value is None else (value,):
            yield from _codes(one)


@cache
def _places(cls: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that are error codes, and those below which there are some."""
    codes = tuple(field.name for field in cls.FIELDS if field.name.endswith("error_code"))
    structs = tuple(
        field.name
        for field in cls.FIELDS
        if isinstance(field.element, type)
        and issubclass(field.element, Struct)
        and any(_places(field.element))
    )
    return codes, structs
