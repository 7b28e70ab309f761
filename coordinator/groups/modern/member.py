"""The common part of members of consumer groups and of share groups (Kafka: ``ModernGroupMember``)."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class MemberState(IntEnum):
    """The state of a member's reconciliation; the values are stored. Members of share groups are always stable."""

    STABLE = 0
    """It has all partitions of its epoch's target, and nothing to revoke."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions and has not yet acknowledged that."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have yet to revoke."""
    UNKNOWN = 127
    """Stored by a later version; the member is fenced and must rejoin."""

    @classmethod
    def stored(cls, value: int) -> MemberState:
        return cls(value) if value in (0, 1, 2) else cls.UNKNOWN


class ModernMember(Protocol):
    """A member as `ModernGroup` needs it; immutable."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def client_id(self) -> str: ...

    @property
    def topic_names(self) -> frozenset[str]: ...

    @property
    def topic_regex(self) -> str | None:
        """Empty or None if it subscribes by names only."""


M = TypeVar("M", bound=ModernMember)
