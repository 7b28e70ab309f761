"""What an assignor takes and returns. Source: Kafka's ``GroupSpec``, ``PartitionAssignor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.wire.schema import Uuid

Assignment = Mapping["Uuid", frozenset[int]]
"""Topic id -> partitions; topics without any are left out."""


class MemberSpec(NamedTuple):
    """A member as assignors see it: the topics that it reads (keys, in order; all of them exist), and its target
    assignment so far.
    """

    topics: Mapping[Uuid, object]
    assigned: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as assignors see it.

    ``partitions``: topic id -> number of partitions, of every topic that a member reads. ``owners``: topic id ->
    partition -> whose target assignment it is in so far. ``homogeneous``: all members read the same topics.
    """

    members: Mapping[str, MemberSpec]
    partitions: Mapping[Uuid, int]
    owners: Mapping[Uuid, Mapping[int, str]]
    homogeneous: bool


Assign = Callable[[GroupSpec], dict[str, Assignment]]
"""Member id -> its new target assignment; members that get nothing may be left out."""
