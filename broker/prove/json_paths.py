"""JSON paths, such as ``$.a.b[0]`` or ``a[*].b``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def parts_of(path: str) -> list[str | int]:
    """Return the names, indexes and stars of a path. Raises InvalidArgumentError if it has none."""
    parts = [
        int(number) if number else (star or name)
        for name, number, star in re.findall(r"([^.\[\]$]+)|\[(\d+)\]|\[(\*)\]", path)
    ]
    if not parts:
        raise InvalidArgumentError(f"{path!r} is no path in a JSON value, such as $.time or items[*].id")
    return parts


def values_at(data: Any, parts: Sequence[str | int]) -> list[Any]:
    """Return what a path names in a value: several values with a star, one or none without."""
    found = [data]
    for part in parts:
        inner: list[Any] = []
        for one in found:
            if isinstance(one, dict):
                inner += [one[part]] if part in one else []
            elif isinstance(one, list):
                inner += one if part == "*" else one[part : part + 1] if isinstance(part, int) else []
        found = inner
    return found


def remove(data: Any, path: str) -> None:
    """Remove what a path names from a value; in a list a null takes its place."""
    *outer, last = parts_of(path)
    for parent in values_at(data, outer):
        if isinstance(parent, dict):
            parent.pop(last, None)
        elif isinstance(parent, list):
            indexes = range(len(parent)) if last == "*" else [last]
            for index in indexes:
                if isinstance(index, int) and index < len(parent):
                    parent[index] = None
