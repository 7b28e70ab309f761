"""`ShareGroupMember`: the durable state of one member of a share group; immutable.

Source: Kafka's ``ShareGroupMember``.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.coordinator.groups.assignors.spec import Assignment
from oncelog.coordinator.groups.modern.member import MemberState

NO_PARTITIONS: Assignment = {}


class ShareGroupMember(NamedTuple):
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Assignment = NO_PARTITIONS

    @property
    def topic_regex(self) -> None:
        """Share groups have no subscriptions by regular expression."""
        return None
