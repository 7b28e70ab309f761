"""`Described`: a group as a Describe request shows it, whose members are added in steps."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncelog.coordinator.groups.modern.member import M

D = TypeVar("D")
T = TypeVar("T")

NAMES_PER_STEP = 100
"""Topic names of a member that are sorted in the time of one step."""


class Described(NamedTuple, Generic[D]):
    """``group`` has no members until the steps of ``add_members`` are done, which add those that it had then."""

    group: D
    add_members: Iterable[None] = ()

    def whole(self) -> D:
        for _ in self.add_members:
            pass
        return self.group


def adding(rows: list[T], members: Iterable[M], described: Callable[[M], T]) -> Iterator[None]:
    """Add what ``described`` makes of each member, in steps."""
    for member in members:
        rows.append(described(member))
        yield from repeat(None, 1 + len(member.topic_names) // NAMES_PER_STEP)
