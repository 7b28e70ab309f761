"""`GroupDeadline`: the key of a group's timer."""

from __future__ import annotations

from typing import NamedTuple


class GroupDeadline(NamedTuple):
    """A deadline in a group of a ``partition``'s shard: ``kind`` is a constant of the protocol's ``timers``."""

    partition: int
    group_id: str
    kind: str
    member_id: str = ""
    """The member that the timer is for; empty for a timer of the whole group."""

    @property
    def owner(self) -> str:
        """See `Deadlines`."""
        return self.group_id
