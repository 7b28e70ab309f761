"""Errors about unknown names and words. Each lists the known ones."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import TypeVar

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError

NAMES_SHOWN = 10
"""How many existing names an error lists."""

NAMES_COMPARED = 1_000
"""How many existing names an unknown one is compared with."""

T = TypeVar("T", bound=str)


def not_found(kind: str, name: object, known: Collection[str]) -> NotFoundError:
    """Return the error for a ``name`` that is none of the ``known`` things of that ``kind``, such as "topic"."""
    there = f"there is: {_listed(known)}" if known else f"there is no {kind} at all"
    return NotFoundError(f"there is no {kind} {name!r}{meant(str(name), known)} ({there})")


def no_partition(topic: str, partition: int, count: int) -> NotFoundError:
    """Return the error for a ``partition`` that a topic of ``count`` partitions does not have."""
    there = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return NotFoundError(f"there is no partition {partition} of topic {topic!r} (it has {there})")


def check_word(argument: str, word: object, known: Collection[T]) -> T:
    """Return ``word`` if it is known. Raises InvalidArgumentError with the most similar of the known words."""
    for one in known:
        if word == one:
            return one
    raise InvalidArgumentError(f"{argument}={word!r}{meant(str(word), known)} (expected: {_listed(known)})")


def _listed(known: Collection[str]) -> str:
    more = ", ..." if len(known) > NAMES_SHOWN else ""
    return ", ".join(sorted(known)[:NAMES_SHOWN]) + more


def meant(name: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: ``; did you mean ...?``, empty if no known one is similar."""
    from difflib import get_close_matches

    # Of names that differ only in case, difflib finds none.
    folded = {one.lower(): one for one in islice(known, NAMES_COMPARED)}
    close = [folded[one] for one in get_close_matches(name.lower(), folded, 3, 0.6)]
    return f"; did you mean {' or '.join(close)}?" if close else ""
