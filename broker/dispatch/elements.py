"""Whether a message has many elements: a response that a small request asks for may be as large as what it is about."""

from __future__ import annotations

from functools import cache

from oncelog.wire.schema import Field, Struct


def has_many(message: Struct, limit: int) -> bool:
    """Whether the arrays of a message, and those in them, have more than ``limit`` elements."""
    return _left(message, limit) < 0


def _left(value: Struct, limit: int) -> int:
    for name, kind in _containers(type(value)):
        content = getattr(value, name)
        if not content:
            continue
        if kind == "struct":
            limit = _left(content, limit)
        else:
            limit -= len(content)
            if limit >= 0 and isinstance(content[0], Struct):
                for row in content:
                    limit = _left(row, limit)
                    if limit < 0:
                        break
        if limit < 0:
            break
    return limit


@cache
def _containers(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """The names of the fields that have elements, each with its kind."""
    return tuple((field.name, field.kind) for field in kind.FIELDS if _has_elements(field))


def _has_elements(field: Field) -> bool:
    element = field.element
    if field.kind == "struct" and isinstance(element, type):
        return any(map(_has_elements, element.FIELDS))
    return field.kind == "array"
