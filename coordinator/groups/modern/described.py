"""`Described`: a group as a Describe request shows it, whose members are added in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from oncelog.wire.steps import Steps

D = TypeVar("D")

NAMES_PER_STEP = 100
"""Topic names of a member that are sorted in the time of one step."""


class Described(NamedTuple, Generic[D]):
    """``group`` has no members before ``add_members`` is done: those that it had when it was described."""

    group: D
    add_members: Steps[None]

    def whole(self) -> D:
        finish(self.add_members)
        return self.group
