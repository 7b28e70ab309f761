"""Errors about names that do not exist, and about words that mean nothing: each says what there is instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection

NAMES_SHOWN = 10
"""How many existing names an error lists."""

T = TypeVar("T", bound=str)


def not_found(kind: str, name: object, known: Collection[object]) -> NotFoundError:
    """Return the error for a ``name`` that is none of the ``known`` things of that ``kind``, such as "topic"."""
    return NotFoundError(
        f"there is no {kind} {name!r}{_instead(str(name), [str(one) for one in known], kind)}"
    )


def no_partition(topic: str, partition: int, count: int) -> NotFoundError:
    """Return the error for a ``partition`` that a topic of ``count`` partitions does not have."""
    there = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return NotFoundError(f"there is no partition {partition} of topic {topic!r} (it has {there})")


def check_word(argument: str, word: object, known: Collection[T]) -> T:
    """Return ``word`` if it is known. Raises InvalidArgumentError with the most similar of the known words."""
    for one in known:
        if word == one:
            return one
    raise InvalidArgumentError(f"{argument}={word!r}{_instead(str(word), list(known), 'value')}")


def _instead(name: str, known: list[str], kind: str) -> str:
    if not known:
        return f" (there is no {kind} at all)" if kind != "value" else ""
    from difflib import get_close_matches

    # Of names that differ only in case, difflib finds none.
    folded = {one.lower(): one for one in known}
    close = [folded[one] for one in get_close_matches(name.lower(), folded, 3, 0.6)]
    shown = ", ".join(sorted(known)[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "")
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{meant} (there is: {shown})" if kind != "value" else f"{meant} (expected: {shown})"
