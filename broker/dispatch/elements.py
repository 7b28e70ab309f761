"""Counts the elements of a message, up to a limit: a small request may ask for a response of very many."""

from __future__ import annotations

from functools import cache

from oncelog.wire.schema import Struct


def has_many(message: Struct, limit: int) -> bool:
    """Tell whether the arrays of a message, and those in them, have more than ``limit`` elements."""
    return _left(message, limit) < 0


def _left(value: Struct, limit: int) -> int:
    for name, is_array, goes_deeper in _containers(type(value)):
        content = getattr(value, name)
        if not content:
            continue
        if is_array:
            limit -= len(content)
        for row in (content if is_array else (content,)) if goes_deeper else ():
            if limit < 0:
                break
            limit = _left(row, limit)
        if limit < 0:
            break
    return limit


@cache
def _containers(kind: type[Struct]) -> tuple[tuple[str, bool, bool], ...]:
    """Name the fields that have elements. Say of each whether it is an array, and whether there are more in it."""
    found = []
    for field in kind.FIELDS:
        is_array, element = field.kind == "array", field.element
        goes_deeper = isinstance(element, type) and bool(_containers(element))
        if is_array or goes_deeper:
            found.append((field.name, is_array, goes_deeper))
    return tuple(found)
