"""The arguments and the result of an assignor. Source: Kafka's ``GroupSpec``, ``PartitionAssignor``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from oncelog.wire.schema import Uuid
from oncelog.wire.steps import Steps

Assignment = Mapping["Uuid", frozenset[int]]
"""Topic id -> partitions; topics without any are left out."""


class MemberSpec(NamedTuple):
    """A member as assignors see it: its subscribed topics (the keys, in order; all exist), and its present target
    assignment.
    """

    topics: Mapping[Uuid, object]
    assigned: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as assignors see it.

    ``partitions``: topic id -> number of partitions, of all subscribed topics. ``owners``: topic id -> partition -> the
    member that has it in its present target assignment. ``homogeneous``: all members subscribe to the same topics.
    ``assignable``: topic id -> the partitions that share groups may assign.
    """

    members: Mapping[str, MemberSpec]
    partitions: Mapping[Uuid, int]
    owners: Mapping[Uuid, Mapping[int, str]]
    homogeneous: bool
    assignable: Mapping[Uuid, Collection[int]] = MappingProxyType({})


Assign = Callable[[GroupSpec], Steps[dict[str, Assignment]]]
"""An assignor: returns member id -> new target assignment; members without partitions may be left out. It takes a step
for each topic, and for each topic of each member.
"""
